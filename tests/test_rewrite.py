"""Bodies pass byte for byte but for what the gate must edit; the usage chunk is hidden from who did not ask."""

import json

import pytest

from harness import chat, http1
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack

MESSAGES = json.dumps(chat.body()["messages"])
# What a re-serialiser would change: order, spacing, escapes, number forms, a repeated foreign member.
ODD = (
    ' {\n\t"messages" : [ {"role":"user", "content":"zebra\\u0066ish \\/ \\ud83d\\ude42 caf\u00e9"} ] ,'
    ' "temperature":1.0e-1, "x":1E2, "x":[ ], "seed":12345678901234567890123, "model":"gpt-4o" }\r\n'
)


def deliver(stack: Stack, tenant: Tenant, body: bytes, chunked: bool = False) -> http1.Response:
    client = http1.Connection(stack.envoy.port)
    if chunked:
        half = len(body) // 2
        pieces = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:])) + b"0\r\n\r\n"
        headers = [tenant.bearer, ("transfer-encoding", "chunked")]
        client.send(http1.encode("POST", chat.PATH, headers, b"", length=False) + pieces)
    else:
        client.send(http1.encode("POST", chat.PATH, [tenant.bearer], body))
    response = client.response()
    client.close()
    assert response.status == 200, response.body
    return response


def assert_arrived(stack: Stack, body: bytes) -> None:
    seen = stack.upstream.only_request()
    assert seen.body == body
    length = seen.header("content-length")
    assert length == str(len(body)) or (length is None and seen.header("transfer-encoding") == "chunked")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_without_edits_passes_as_it_is(stack: Stack, tenant: Tenant, chunked: bool) -> None:
    deliver(stack, tenant, ODD.encode(), chunked)
    assert_arrived(stack, ODD.encode())


def request(members: str) -> str:
    return f'{{"model":"gpt-4o","stream":true,{members}"messages":{MESSAGES}}}'


# Members of the request as the client sends them, and as the provider gets them.
INCLUDE = '"stream_options":{"include_usage":true},'
EDITS = {
    "null": ('"stream_options":null,', '"stream_options":{"include_usage":true},'),
    "empty": ('"stream_options":{},', '"stream_options":{"include_usage":true},'),
    "empty, spaced": ('"stream_options" : { } ,', '"stream_options" : {"include_usage":true } ,'),
    "false": ('"stream_options":{"include_usage":false},', '"stream_options":{"include_usage":true},'),
    "null inside": ('"stream_options":{"include_usage": null},', '"stream_options":{"include_usage": true},'),
    "another option": (
        '"stream_options":{"include_obfuscation":false},',
        '"stream_options":{"include_usage":true,"include_obfuscation":false},',
    ),
    "false among others": (
        '"stream_options":{"a":[{}], "include_usage":false, "b":"}"},',
        '"stream_options":{"a":[{}], "include_usage":true, "b":"}"},',
    ),
    "escaped name": (
        '"stream_options":{"include\\u005fusage":false},',
        '"stream_options":{"include\\u005fusage":true},',
    ),
    "spelt inside a string": ('"user":"\\"stream_options\\":{",', None),
    "absent": ("", None),
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("sent", "edited"), EDITS.values(), ids=EDITS)
def test_usage_is_asked_for_and_its_chunk_hidden(
    stack: Stack, tenant: Tenant, sent: str, edited: str | None, chunked: bool
) -> None:
    usage = chat.usage_of(chat.body())
    events = chat.stream_events(chat.DELTAS, usage)
    stack.upstream.handler = chat.raw_stream(b"".join(events))
    response = deliver(stack, tenant, request(sent).encode(), chunked)
    expected = request(edited) if edited else request(sent).replace("{", "{" + INCLUDE, 1)
    assert_arrived(stack, expected.encode())
    without = [part for part in events if part != chat.usage_event(usage)]
    assert response.body == b"".join(without)
    assert len(without) == len(events) - 1
    stack.settles_to(tenant, usage.total, requests=1)


def test_the_chunk_stays_for_who_asked(stack: Stack, tenant: Tenant) -> None:
    usage = chat.usage_of(chat.body())
    sent = b"".join(chat.stream_events(chat.DELTAS, usage))
    stack.upstream.handler = chat.raw_stream(sent)
    body = request('"stream_options": {"include_usage": true},').encode()
    response = deliver(stack, tenant, body)
    assert_arrived(stack, body)
    assert response.body == sent
    stack.settles_to(tenant, usage.total, requests=1)


@pytest.mark.parametrize(
    "stream",
    ['"stream":false,', '"stream":null,', "", '"stream":false,"stream_options":{"include_usage":false},']
    + ['"stream_options":null,', '"stream":false,"stream_options":{},'],
)
def test_nothing_is_added_when_nothing_is_streamed(stack: Stack, tenant: Tenant, stream: str) -> None:
    body = f'{{"model":"gpt-4o",{stream}"messages":{MESSAGES}}}'.encode()
    deliver(stack, tenant, body)
    assert_arrived(stack, body)


@pytest.mark.parametrize(
    ("sent", "capped"),
    [
        ('"max_tokens":999999,', '"max_tokens":1000,'),
        ('"max_tokens" :\t999999 ,', '"max_tokens" :\t1000 ,'),
        ('"max_completion_tokens":2e3,', '"max_completion_tokens":1000,'),
        (
            '"max_tokens":4294967296,"max_completion_tokens":9223372036854775807,',
            '"max_tokens":1000,"max_completion_tokens":1000,',
        ),
        ('"max_tokens":7,"max_completion_tokens":1001,', '"max_tokens":7,"max_completion_tokens":1000,'),
        ('"max_tokens":1000,', '"max_tokens":1000,'),
    ],
)
def test_an_output_limit_above_the_model_is_written_back(stack: Stack, tenant: Tenant, sent: str, capped: str) -> None:
    def body(members: str) -> str:
        return f'{{"model":"gpt-4o",{members}"messages":{MESSAGES}}}'

    deliver(stack, tenant, body(sent).encode())
    assert_arrived(stack, body(capped).encode())


def test_several_edits_of_one_body(stack: Stack, tenant: Tenant) -> None:
    sent = f'{{"max_tokens":5000,"model":"gpt-4o","messages":{MESSAGES},"stream":true}}'
    deliver(stack, tenant, sent.encode())
    assert_arrived(stack, sent.replace("{", "{" + INCLUDE, 1).replace("5000", "1000").encode())


ODD_STREAMS = {
    "no space after the colon": b'data:{"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n%s\n\ndata:[DONE]\n\n',
    "comments": b": zebra\n\n: again\n\n%s\n\n: ping\n\ndata: [DONE]\n\n",
    "ids and retries": b"retry: 3000\n\nid: 7\n\ndata:\n\n%s\n\ndata: [DONE]\n\n",
    "no end mark": b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n%s\n\n',
    "a choice-less event that is not the usage": b'data: {"choices":[],"x_cost":0.01}\n\n%s\n\ndata: [DONE]\n\n',
    "CR only": b'data: {"choices":[]}\r\r%s\r\rdata: [DONE]\r\r',
}
USAGE_LINE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":4,"total_tokens":12}}'


@pytest.mark.parametrize("shape", ODD_STREAMS.values(), ids=ODD_STREAMS)
def test_odd_streams_lose_the_usage_chunk_and_nothing_else(stack: Stack, tenant: Tenant, shape: bytes) -> None:
    blank = b"\r\r" if b"\r" in shape else b"\n\n"
    stack.upstream.handler = chat.raw_stream(shape % USAGE_LINE)
    response = stack.ask(tenant, stream=True)
    assert response.body == shape.replace(b"%s" + blank, b"")
    stack.settles_to(tenant, 12, requests=1)


DIGESTS = ["content-md5", "digest", "content-digest", "repr-digest", "signature"]


@pytest.mark.parametrize("name", DIGESTS)
def test_a_body_with_a_digest_is_not_rewritten(stack: Stack, tenant: Tenant, name: str) -> None:
    body = request('"max_tokens":50,' + INCLUDE).encode()
    stack.upstream.handler = chat.answer()
    response = stack.post([tenant.bearer, (name, "sha-256=:any:")], body)
    assert response.status == 200
    assert_arrived(stack, body)
    assert stack.upstream.only_request().header(name) == "sha-256=:any:"
    stack.settles_to(tenant, chat.usage_of(json.loads(body)).total, requests=1)


@pytest.mark.parametrize("name", DIGESTS)
def test_a_limit_that_a_digest_forbids_to_lower_is_refused(stack: Stack, tenant: Tenant, name: str) -> None:
    response = stack.post([tenant.bearer, (name, "any")], request('"max_tokens":1001,' + INCLUDE).encode())
    assert_refused(response, 400, "invalid_request_error", None, param="max_tokens")
    assert "no output limit may be above 1000" in response.error()["message"]
    assert "send no digest" in response.error()["message"]
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)


def test_a_stream_whose_usage_a_digest_forbids_to_ask_for_is_refused(stack: Stack, tenant: Tenant) -> None:
    response = stack.post([tenant.bearer, ("digest", "any")], request('"max_tokens":50,').encode())
    assert_refused(response, 400, "invalid_request_error", None, param="stream_options")
    for way_out in ("'include_usage': true", "send no digest"):
        assert way_out in response.error()["message"]
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)
