"""What is held for images, for tools in every form, and for a schema of the answer: never nothing, never base64."""

import base64
import json
import struct
from typing import Any

import pytest

from harness import chat
from harness.oracle import oracle
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack
from harness.upstream import Exchange
from harness.wait import eventually

USAGE = chat.Usage(40, 2)
LIMIT = chat.body()["max_tokens"]


def held(stack: Stack, tenant: Tenant, body: dict[str, Any]) -> int:
    """The prompt part of the hold, while the request is under way; it arrives as it was sent."""
    gate = stack.upstream.gate()

    async def handler(exchange: Exchange) -> None:
        await gate.wait()
        await chat.raw_json(chat.completion("x", USAGE))(exchange)

    stack.upstream.handler = handler
    client = stack.open(tenant, body)
    try:
        gate.reached(1)
        bucket = eventually(lambda: stack.service.bucket(tenant.name), lambda seen: seen.open_holds == 1)
        assert stack.upstream.only_request().body == chat.encode(body)
        gate.open()
        assert client.response().status == 200
    finally:
        gate.open()
        client.close()
    stack.settles_to(tenant, USAGE.total, requests=1)
    return bucket.tokens - LIMIT


def png(width: int, height: int, padding: int = 0) -> str:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII5s", 13, b"IHDR", width, height, b"\x08\x02\0\0\0")
    return "data:image/png;base64," + base64.b64encode(header + bytes(padding)).decode()


def framing() -> int:
    return oracle().prompt([{"role": "user", "content": ""}])


# The published most of a gpt-4o image, and its price in low detail.
MOST, LOW = 1445, 85
IMAGES: dict[str, tuple[Any, int, int]] = {
    "far away": ({"url": "https://images.test/a.png"}, MOST, MOST),
    "as a string": ("https://images.test/a.png", MOST, MOST),
    "low detail": ({"url": "https://images.test/a.png", "detail": "low"}, LOW, LOW),
    "low detail, inline": ({"url": png(4096, 4096), "detail": "low"}, LOW, LOW),
    "high detail, inline": ({"url": png(1024, 1024), "detail": "high"}, 765, MOST),
    "auto, inline": ({"url": png(1024, 1024), "detail": "auto"}, 765, MOST),
    "a megabyte, inline": ({"url": png(1024, 1024, 1 << 20)}, 765, MOST),
    "no image at all": ({"url": "data:image/png;base64,AAAA"}, LOW, MOST),
    "a broken address": ({"url": "data:"}, LOW, MOST),
    "a size of nothing": ({"url": png(0, 0)}, LOW, MOST),
    "a size beyond all": ({"url": png(0xFFFFFFFF, 0xFFFFFFFF)}, LOW, MOST),
    "detail of another type": ({"url": "https://images.test/a.png", "detail": 7}, MOST, MOST),
    "detail that nobody knows": ({"url": "https://images.test/a.png", "detail": "ultra"}, MOST, MOST),
    "an address that is none": ({"url": 7}, 0, MOST),
    "nothing": (None, 0, 0),
}


@pytest.mark.parametrize(("image", "least", "most"), IMAGES.values(), ids=IMAGES)
def test_an_image(stack: Stack, tenant: Tenant, image: Any, least: int, most: int) -> None:
    content = [{"type": "image_url", "image_url": image}]
    counted = held(stack, tenant, chat.body(messages=[{"role": "user", "content": content}])) - framing()
    assert least <= counted <= most


def test_images_add_up(stack: Stack, tenant: Tenant) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://images.test/a.png", "detail": "low"}}
    content = [{"type": "text", "text": chat.PROMPT}, *[image] * 20]
    counted = held(stack, tenant, chat.body(messages=[{"role": "user", "content": content}]))
    assert counted == framing() + oracle().text(chat.PROMPT) + 20 * LOW


FUNCTION = {
    "name": "weather",
    "description": "Tells the weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "The name of a city."},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "description": "How many days ahead."},
        },
        "required": ["place"],
    },
}
NESTED = {"type": "object", "properties": {"list": {"type": "array", "items": FUNCTION["parameters"]}}}
SCHEMA = {"type": "object", "properties": {f"member_{i}": {"type": "string"} for i in range(150)}}
ARGUMENTS = '{"place":"Bern"}' + " x" * 90
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "sunny and warm"}
USER = {"role": "user", "content": "hi"}
# What a body says beyond a plain one, and the texts in it that cannot be free.
SAYS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "tools": ({"tools": [{"type": "function", "function": FUNCTION}]}, ["Tells the weather of a place.", "celsius"]),
    "many tools": ({"tools": [{"type": "function", "function": FUNCTION}] * 30}, ["weather of a place"] * 30),
    "functions": ({"functions": [FUNCTION]}, ["Tells the weather of a place.", "fahrenheit"]),
    "nested": ({"tools": [{"type": "function", "function": {"name": "f", "parameters": NESTED}}]}, ["name of a city"]),
    "another kind": ({"tools": [{"type": "custom", "custom": {"name": "run", "description": "Runs."}}]}, ["Runs."]),
    "a schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
        [f"member_{i}" for i in range(150)],
    ),
    "calls": (
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]},
        ["weather", ARGUMENTS, "sunny and warm"],
    ),
    "an old call": (
        {"messages": [USER, {"role": "assistant", "content": None, "function_call": CALL["function"]}]},
        ["weather", '{"place":"Bern"}'],
    ),
}


@pytest.mark.parametrize(("members", "texts"), SAYS.values(), ids=SAYS)
def test_tools_and_schemas(stack: Stack, tenant: Tenant, members: dict[str, Any], texts: list[str]) -> None:
    """At least what is said in them, at most their JSON with all that frames it."""
    body = chat.body(**{"messages": [USER], **members})
    counted = held(stack, tenant, body)
    assert counted > oracle().prompt([USER]) + sum(map(oracle().text, texts))
    assert counted <= oracle().text(json.dumps(body)) + 200


@pytest.mark.parametrize("member", ["tools", "functions", "response_format"])
@pytest.mark.parametrize("value", [None, [], {}, "x", 7, True, [None], [[]], [{"function": None}]], ids=repr)
def test_shapes_that_the_provider_will_refuse_are_its_own_to_refuse(
    stack: Stack, tenant: Tenant, member: str, value: Any
) -> None:
    least = oracle().prompt(chat.body()["messages"])
    assert least <= held(stack, tenant, chat.body(**{member: value})) <= least + 20


def test_tools_are_not_free(stack: Stack) -> None:
    """Of a plan with room for the messages, and not for these."""
    tools = [{"type": "function", "function": FUNCTION}] * 30
    assert_refused(stack.ask(stack.tenant("small"), tools=tools), 429, "rate_limit_error", "request_exceeds_limit")
    assert stack.upstream.requests == []
