"""Bodies that are valid and strange: deep, wide, escaped, in every shape the API documents and in some it does not."""

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
USAGE = chat.Usage(40, 2)
LIMIT = chat.body()["max_tokens"]


def raw(members: str, messages: str = MESSAGES) -> bytes:
    return f'{{"model":"gpt-4o","messages":{messages},{members}"max_tokens":{LIMIT}}}'.encode("utf-8", "surrogatepass")


def served(stack: Stack, tenant: Tenant, body: bytes) -> None:
    """Passed byte for byte, and charged what the provider says."""
    stack.upstream.handler = chat.raw_json(chat.completion("x", USAGE))
    response = stack.post([tenant.bearer], body)
    assert response.status == 200, response.body
    assert stack.upstream.only_request().body == body
    stack.settles_to(tenant, USAGE.total, requests=1)


DEEP = 10_000
FOREIGN = {
    "nested arrays": f'"x":{"[" * DEEP}{"]" * DEEP},',
    "nested objects": '"x":' + '{"a":' * DEEP + "1" + "}" * DEEP + ",",
    "numbers of every length": f'"x":[1e400,-0,{"9" * 400},0.{"3" * 400}],',
    "members of one name": '"user":"a","user":"b",',
    "names that end like ours": '"xmodel":"a","model ":"b"," model":"c","maxTokens":"d",',
    "names within others": '"metadata":{"model":"o3","stream":true,"max_tokens":-1,"messages":null},',
    "an empty name": '"":"",',
    "ten thousand members": "".join(f'"m{i}":{i},' for i in range(DEEP)),
    "lone surrogates": '"user":"\\ud800 \\udc00 \\ud800\\ud800",',
    "NUL": '"user":"a\\u0000b",',
    "escaped": '"us\\u0065r":"\\"\\\\\\/\\b\\f\\n\\r\\t",',
}


@pytest.mark.parametrize("members", FOREIGN.values(), ids=FOREIGN)
def test_members_that_we_do_not_act_on_pass(stack: Stack, tenant: Tenant, members: str) -> None:
    served(stack, tenant, raw(members))


CONTENTS = {
    "null": "null",
    "null with tool calls": 'null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]',
    "absent": 'null,"content2":"x"',
    "no parts": "[]",
    "one text": '[{"type":"text","text":"hi"}]',
    "odd parts": '[null,{"type":"video_url","video_url":{"url":"x"}},'
    '{"type":"tool_result","content":[{"type":"text","text":"ok"}]},42]',
    "an image": '[{"type":"image_url","image_url":{"url":"https://images.test/a.png"}}]',
    "an image as a string": '[{"type":"image_url","image_url":"https://images.test/a.png"}]',
    "no image": '[{"type":"image_url","image_url":null}]',
    "sound": '[{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}]',
    "a file": '[{"type":"file","file":{"file_id":"f-1"}}]',
    "a refusal": '[{"type":"refusal","refusal":"no"}]',
    "a text that is none": '[{"type":"text","text":null}]',
    "parts without a type": '[{},{"text":"x"}]',
    "an object": '{"text":"x"}',
    "a number": "7",
    "lone surrogates": '"\\ud83d \\ude42 zebra\\udfffish"',
    "NUL": '"zebra\\u0000fish"',
    "500 parts": "[" + ",".join('{"type":"text","text":"part"}' for _ in range(500)) + "]",
    "500 nested results": '[{"type":"tool_result","content":' * 500 + "null" + "}]" * 500,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_contents_of_every_shape_are_counted_and_passed(stack: Stack, tenant: Tenant, content: str) -> None:
    served(stack, tenant, raw("", f'[{{"role":"user","content":{content}}}]'))


def held_for(stack: Stack, tenant: Tenant, body: bytes) -> int:
    """The prompt part of what a request holds while it is under way."""
    gate = stack.upstream.gate()

    async def handler(exchange: Any) -> None:
        await gate.wait()
        await chat.raw_json(chat.completion("x", USAGE))(exchange)

    stack.upstream.handler = handler
    client = stack.open(tenant, body)
    try:
        gate.reached(1)
        bucket = eventually(lambda: stack.service.bucket(tenant.name), lambda seen: seen.open_holds == 1)
        gate.open()
        assert client.response().status == 200
    finally:
        gate.open()
        client.close()
    return bucket.tokens - LIMIT


def prompt(*contents: str) -> int:
    return oracle().prompt([{"role": "user", "content": text} for text in contents])


@pytest.mark.parametrize(
    ("content", "counted"),
    [
        ("null", lambda: prompt("")),
        ("[]", lambda: prompt("")),
        ('[{"type":"text","text":"hi"}]', lambda: prompt("hi")),
        ('"\\ud83d!"', lambda: prompt("\ufffd!")),
        ('"\\ud83d\\ude42"', lambda: prompt("🙂")),
        ('"a\\u0000b"', lambda: prompt("a\0b")),
        ('"<|endoftext|>"', lambda: 14),
        ("[" + ",".join('{"type":"text","text":"part"}' for _ in range(500)) + "]", lambda: prompt("") + 500),
    ],
    ids=["null", "no parts", "one part", "lone surrogate", "pair", "NUL", "special", "500 parts"],
)
def test_what_is_held_for_a_content(stack: Stack, tenant: Tenant, content: str, counted: Any) -> None:
    body = raw("", f'[{{"role":"user","content":{content}}}]')
    assert held_for(stack, tenant, body) == counted()


def test_no_messages_at_all_are_a_prompt_of_their_own(stack: Stack, tenant: Tenant) -> None:
    assert held_for(stack, tenant, raw("", "[]")) == oracle().prompt([])


@pytest.mark.parametrize("part", ['{"type":"video_url","video_url":{"url":"%s"}}', '{"odd":"%s"}'])
def test_an_unknown_part_is_not_free(stack: Stack, tenant: Tenant, part: str) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    body = raw("", '[{"role":"user","content":[%s]}]' % (part % text))
    assert held_for(stack, tenant, body) >= oracle().text(text)


def test_base64_is_not_counted_as_text(stack: Stack, tenant: Tenant) -> None:
    url = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAA" * 20_000
    body = raw("", '[{"role":"user","content":[{"type":"image_url","image_url":{"url":"%s"}}]}]' % url)
    assert 0 < held_for(stack, tenant, body) < 50_000


SPACES = "\t\n\r "


@pytest.mark.parametrize("place", ["before", "after"])
def test_white_space_around_the_object(stack: Stack, tenant: Tenant, place: str) -> None:
    body = raw("")
    served(stack, tenant, SPACES.encode() + body if place == "before" else body + SPACES.encode())


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"\xef\xbb\xbf", b""), (b"\xff\xfe", b""), (b"", b"\0"), (b"", b"x"), (b"", b"{}"), (b"", b","), (b"\x0b", b"")],
    ids=["BOM", "UTF-16 mark", "NUL behind", "text behind", "object behind", "comma behind", "vertical tab"],
)
def test_what_is_around_the_object_and_no_white_space(
    stack: Stack, tenant: Tenant, before: bytes, after: bytes
) -> None:
    response = stack.post([tenant.bearer], before + raw("") + after)
    assert_refused(response, 400, "invalid_request_error", None)
    assert stack.upstream.requests == []
    assert stack.service.bucket(tenant.name) == Bucket(0, 0)


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_another_charset_is_no_json(stack: Stack, tenant: Tenant, charset: str) -> None:
    response = stack.post([tenant.bearer], raw("").decode().encode(charset))
    assert_refused(response, 400, "invalid_request_error", None)
    assert stack.upstream.requests == []
