"""The policy changes while a request is under way: it is settled by what it was held with."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat
from harness.http1 import Connection
from harness.oracle import oracle
from harness.policy import Plan, Policy, Tenant
from harness.stack import Stack, running
from harness.upstream import Gate
from harness.wait import becomes

PROMPT = oracle().prompt(chat.body()["messages"])
USAGE = chat.usage_of(chat.body())
HELD_OUTPUT = 50
WEIGHTED, SPENT = "weighted", "spent"


def priced(document: dict[str, Any], price: str, weight: int, every: str) -> None:
    for model in document["models"]:
        model["price_usd_per_million"] = {"input": price, "output": price}
    document["limits"] += [
        {
            "name": WEIGHTED,
            "per": ["tenant"],
            "count": "tokens",
            "algorithm": "fixed_window",
            "every": every,
            "weights": {"input": 1, "output": weight},
            "limit": 1_000_000,
        },
        # Its buckets stay when prices change.
        {
            "name": SPENT,
            "per": ["tenant"],
            "count": "cost",
            "algorithm": "fixed_window",
            "every": "24h",
            "limit": {"usd": "1000"},
        },
    ]


def old(document: dict[str, Any]) -> None:
    priced(document, price="1.00", weight=3, every="24h")


def new(document: dict[str, Any]) -> None:
    document["version"] = "tests-2"
    priced(document, price="7.00", weight=5, every="12h")


def without_the_model(document: dict[str, Any]) -> None:
    """As good as a new provider: nothing of what was held exists any more."""
    document["version"] = "tests-3"
    document["models"] = [model for model in document["models"] if model["name"] != "gpt-4o"]
    document["limits"] = document["limits"][-1:]


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    policy = Policy({"roomy": Plan()}, old)
    with running(tmp_path_factory.mktemp("stack"), policy=policy) as stack:
        yield stack


def used(stack: Stack, tenant: Tenant) -> tuple[int, int, int]:
    """Weighted tokens, nano-dollars, open holds."""
    seen = stack.service.explain(tenant.name, "gpt-4o")
    amounts = {limit["name"]: limit["used"] for limit in seen["limits"]}
    return amounts[WEIGHTED], amounts[SPENT], seen["open_holds"]


def begin(stack: Stack, tenant: Tenant) -> tuple[Connection, Gate]:
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    connection = stack.open(tenant, chat.body(stream=True, max_tokens=HELD_OUTPUT))
    gate.reached(1)
    return connection, gate


def finish(connection: Connection, gate: Gate) -> None:
    gate.open()
    assert connection.response().status == 200
    connection.close()


def test_price_weights_and_window(stack: Stack, tenant: Tenant) -> None:
    connection, gate = begin(stack, tenant)
    held = (PROMPT + 3 * HELD_OUTPUT, (PROMPT + HELD_OUTPUT) * 1_000)
    becomes(lambda: used(stack, tenant), (*held, 1))
    stack.change_policy(new)
    # Other weights and another window are another limit, of which nothing is used.
    assert used(stack, tenant) == (0, held[1], 1)
    finish(connection, gate)
    spent = USAGE.total * 1_000
    becomes(lambda: used(stack, tenant), (0, spent, 0))
    # What comes now is charged by the new policy.
    stack.upstream.handler = chat.answer()
    assert stack.ask(tenant).status == 200
    spent += USAGE.total * 7_000
    becomes(lambda: used(stack, tenant), (USAGE.prompt + 5 * USAGE.completion, spent, 0))
    stack.change_policy(old)
    # The old limit has the first request, corrected by the old weights.
    assert used(stack, tenant) == (USAGE.prompt + 3 * USAGE.completion, spent, 0)


def test_a_model_that_is_gone(stack: Stack, tenant: Tenant) -> None:
    connection, gate = begin(stack, tenant)
    stack.change_policy(without_the_model)
    finish(connection, gate)
    # The filter has noticed as well.
    assert stack.ask(tenant).status == 404
    stack.change_policy(old)
    becomes(
        lambda: used(stack, tenant), (USAGE.prompt + 3 * USAGE.completion, USAGE.total * 1_000, 0)
    )
