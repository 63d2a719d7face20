"""Filters before and after ours answer, delay and hang up; whoever never reached the provider pays nothing."""

from collections.abc import Iterator

import pytest

from harness import chat, http1, http2
from harness.envoy import Config
from harness.http1 import Headers
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.routes import buffer, fault, filters, lua
from harness.stack import Stack, running
from harness.wait import becomes, eventually

BODY = chat.encode(chat.body())
# Answers when its header asks for it, on the request's headers or once its body is whole.
ANSWERS = """
function envoy_on_request(handle)
  local status = handle:headers():get("x-%s-headers")
  if status then
    handle:respond({[":status"] = status, ["x-who"] = "%s"}, "not you")
    return
  end
  status = handle:headers():get("x-%s-body")
  if status then
    handle:body()
    handle:respond({[":status"] = status, ["x-who"] = "%s"}, "not you")
  end
end
"""
# Looks at the answer, as a filter that transforms would, and adds a header.
LISTENS = """
function envoy_on_response(handle)
  handle:headers():add("x-heard", "yes")
end
"""
SMALL = 64 * 1024


def around(config: Config) -> None:
    chain = filters(config)
    chain.insert(0, lua("before", ANSWERS.replace("%s", "before")))
    chain[-1:-1] = [lua("after", ANSWERS.replace("%s", "after")), fault(), lua("listens", LISTENS), buffer(SMALL)]


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("filters"), edit=around) as stack:
        yield stack


def over_http1(stack: Stack, headers: Headers, body: bytes) -> http1.Response:
    return http1.request(stack.envoy.port, "POST", chat.PATH, headers, body)


def over_http2(stack: Stack, headers: Headers, body: bytes) -> http1.Response:
    return http2.request(stack.envoy.port, headers, [body[:7], body[7:]], chat.PATH)


PROTOCOLS = pytest.mark.parametrize("speak", [over_http1, over_http2])


@PROTOCOLS
@pytest.mark.parametrize("status", ["200", "401", "403", "429", "503"])
@pytest.mark.parametrize("moment", ["headers", "body"])
@pytest.mark.parametrize("place", ["before", "after"])
def test_another_filters_answer_costs_nothing(
    stack: Stack, tenant: Tenant, place: str, moment: str, status: str, speak: type
) -> None:
    response = speak(stack, [tenant.bearer, (f"x-{place}-{moment}", status)], BODY)
    assert (response.status, response.header("x-who")) == (int(status), place)
    # Envoy's own mapper puts refusals into the shape that clients read; it leaves a 200 alone.
    assert b"not you" in response.body
    [entry] = stack.envoy.logged(response)
    assert entry["details"] == "lua_response"
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)
    assert stack.service.account_requests(tenant.name) == 0


def test_a_filter_before_ours_does_not_make_a_reserve(stack: Stack, tenant: Tenant) -> None:
    """The caller has no right to a single request, and it is not we who say so."""
    spent = stack.tenant("one-request")
    assert stack.ask(spent).status == 200
    response = over_http1(stack, [spent.bearer, ("x-before-headers", "403")], BODY)
    assert (response.status, response.header("x-ratelimit-limit-requests")) == (403, None)
    response = over_http1(stack, [spent.bearer, ("x-after-headers", "403")], BODY)
    assert_refused(response, 429, "rate_limit_error", "rpm_limit_exceeded")


@PROTOCOLS
def test_an_answer_of_a_filter_behind_ours_tells_the_budget(stack: Stack, tenant: Tenant, speak: type) -> None:
    response = speak(stack, [tenant.bearer, ("x-after-headers", "403")], BODY)
    assert response.header("x-ratelimit-limit-requests") is not None


@pytest.mark.parametrize("status", ["429", "500", "503"])
def test_an_injected_fault_costs_nothing(stack: Stack, tenant: Tenant, status: str) -> None:
    response = over_http1(stack, [tenant.bearer, ("x-envoy-fault-abort-request", status)], BODY)
    assert response.status == int(status)
    [entry] = stack.envoy.logged(response)
    assert (entry["details"], entry["flags"]) == ("fault_filter_abort", "FI")
    assert response.header("x-tokengate-refused-by") != "upstream"
    stack.settles_to(tenant, tokens=0, requests=0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_another_filter_waits(stack: Stack, tenant: Tenant, stream: bool) -> None:
    """Admitted, held up behind us, gone: the provider has heard nothing."""
    headers = [tenant.bearer, ("x-envoy-fault-delay-request", "60000")]
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, headers, chat.encode(chat.body(stream=stream))))
    eventually(lambda: stack.service.bucket(tenant.name).open_holds, lambda held: held == 1)
    client.close()
    becomes(stack.envoy.active_requests, 0)
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)


@PROTOCOLS
def test_a_body_that_is_too_large_for_a_filter_behind_ours(stack: Stack, tenant: Tenant, speak: type) -> None:
    response = speak(stack, [tenant.bearer], chat.encode(chat.body(padding="x" * 2 * SMALL)))
    assert_refused(response, 413, "invalid_request_error", "request_too_large")
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)


@PROTOCOLS
@pytest.mark.parametrize("stream", [False, True])
def test_between_other_filters_all_is_as_without(stack: Stack, tenant: Tenant, speak: type, stream: bool) -> None:
    response = speak(stack, [tenant.bearer], chat.encode(chat.body(stream=stream)))
    assert (response.status, response.header("x-heard")) == (200, "yes")
    seen = stack.upstream.only_request()
    assert seen.json() == chat.body(stream=stream, **({"stream_options": {"include_usage": True}} if stream else {}))
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)
