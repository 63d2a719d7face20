"""Numbers of every shape in the members that decide what is held."""

import json
from typing import Any

import pytest

from harness import chat
from harness.oracle import oracle
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.service import Bucket
from harness.stack import Stack
from harness.wait import eventually

MESSAGES = json.dumps(chat.body()["messages"])
MAXIMUM, DEFAULT = 1000, 200


def raw(members: str) -> bytes:
    return f'{{"model":"gpt-4o","messages":{MESSAGES},{members}}}'.encode()


def assert_held(stack: Stack, tenant: Tenant, body: bytes, output: int) -> Any:
    """While the request is under way; returns what the provider was given."""
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    client = stack.open(tenant, body)
    try:
        eventually(lambda: gate.waiting, lambda waiting: waiting == 1)
        stack.holds(tenant, oracle().prompt(chat.body()["messages"]) + output)
    finally:
        gate.open()
    assert client.response().status == 200
    client.close()
    return stack.upstream.only_request().json()


@pytest.mark.parametrize("member", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("number", "output"),
    [
        ("1", 1),
        ("100.0", 100),
        ("100.000", 100),
        ("1e2", 100),
        ("1E+2", 100),
        ("1000e-1", 100),
        ("0.5e2", 50),
        ("1001", MAXIMUM),
        ("4294967296", MAXIMUM),
        ("4294967297", MAXIMUM),
        ("9223372036854775807", MAXIMUM),
        ("9223372036854775808", MAXIMUM),
        ("18446744073709551615", MAXIMUM),
        ("1e18", MAXIMUM),
        ("1.5e18", MAXIMUM),
        ("1e19", MAXIMUM),
        ("2e19", MAXIMUM),
        ("18446744073709551616", MAXIMUM),
        ("1" * 400, MAXIMUM),
        ("1e400", MAXIMUM),
        ("1e99999999999", MAXIMUM),
        ("null", DEFAULT),
        ("-1", DEFAULT),
        ("-1.0", DEFAULT),
        ("-10e-1", DEFAULT),
    ],
    ids=lambda value: str(value)[:24],
)
def test_an_output_limit(stack: Stack, tenant: Tenant, member: str, number: str, output: int) -> None:
    seen = assert_held(stack, tenant, raw(f'"{member}":{number}'), output)
    assert seen[member] == (json.loads(number) if output == DEFAULT else output)


@pytest.mark.parametrize(
    ("number", "choices"), [("1", 1), ("2.0", 2), ("2e0", 2), ("1.28e2", 128), ("128", 128), ("null", 1)]
)
def test_choices(stack: Stack, tenant: Tenant, number: str, choices: int) -> None:
    assert_held(stack, tenant, raw(f'"max_tokens":10,"n":{number}'), 10 * choices)


@pytest.mark.parametrize("value", ["-1", "1e400", "2e19", "18446744073709551616", "1" * 400], ids=lambda v: v[:24])
def test_what_bounds_no_choices(stack: Stack, tenant: Tenant, value: str) -> None:
    response = stack.post([tenant.bearer], raw(f'"n":{value}'))
    assert_refused(response, 400, "invalid_request_error", None, param="n")
    assert stack.upstream.requests == []


@pytest.mark.parametrize("member", ["max_tokens", "max_completion_tokens", "n"])
@pytest.mark.parametrize(
    "value",
    [
        "0",
        "-0",
        "0.0",
        "-0.0",
        "0e5",
        "-2",
        "-1.5",
        "-500",
        "-9223372036854775808",
        "-1e400",
        "0.5",
        "1e-1",
        "100.5",
        '"100"',
        '"-1"',
        '""',
        '"\\u0031"',
        "true",
        "false",
        "[]",
        "[1]",
        "{}",
    ],
    ids=lambda value: value[:24],
)
def test_what_is_no_number_of_tokens_or_choices(stack: Stack, tenant: Tenant, member: str, value: str) -> None:
    response = stack.post([tenant.bearer], raw(f'"{member}":{value}'))
    assert_refused(response, 400, "invalid_request_error", None, param=member)
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)


@pytest.mark.parametrize("value", ["+1", "01", ".5", "1.", "1e", "0x10", "NaN", "Infinity", "-", "1_000", "１"])
def test_what_is_no_json_number(stack: Stack, tenant: Tenant, value: str) -> None:
    response = stack.post([tenant.bearer], raw(f'"max_tokens":{value}'))
    assert response.status == 400
    assert response.error()["type"] == "invalid_request_error"
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)


def test_the_larger_of_two_limits_counts_also_when_one_is_null(stack: Stack, tenant: Tenant) -> None:
    assert_held(stack, tenant, raw('"max_tokens":null,"max_completion_tokens":30'), 30)


@pytest.mark.parametrize("second", ["-2", '"9"', "0", "-1e400"])
def test_a_bad_limit_beside_a_good_one(stack: Stack, tenant: Tenant, second: str) -> None:
    response = stack.post([tenant.bearer], raw(f'"max_tokens":30,"max_completion_tokens":{second}'))
    assert_refused(response, 400, "invalid_request_error", None, param="max_completion_tokens")
    assert stack.upstream.requests == []


@pytest.mark.parametrize(("second", "output"), [("-1", 30), ("1e400", MAXIMUM)])
def test_no_limit_and_a_huge_one_beside_a_good_one(stack: Stack, tenant: Tenant, second: str, output: int) -> None:
    """Whichever of the two a server reads, it is given no more than is held."""
    seen = assert_held(stack, tenant, raw(f'"max_tokens":30,"max_completion_tokens":{second}'), output)
    assert (seen["max_tokens"], seen["max_completion_tokens"]) == (30, output)
