"""Headers that a caller might try: to be someone else, to be several, to be nobody, to make the proxy work more."""

import pytest

from harness import chat, http1, http2
from harness.envoy import PROVIDER_KEY
from harness.http1 import Headers
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack

BODY = chat.encode(chat.body())
TOTAL = chat.usage_of(chat.body()).total


def over_http1(stack: Stack, headers: Headers) -> http1.Response:
    return http1.request(stack.envoy.port, "POST", chat.PATH, headers, BODY)


def over_http2(stack: Stack, headers: Headers) -> http1.Response:
    return http2.request(stack.envoy.port, [(name.lower(), value) for name, value in headers], [BODY], chat.PATH)


PROTOCOLS = pytest.mark.parametrize("speak", [over_http1, over_http2])


@PROTOCOLS
@pytest.mark.parametrize(
    "name",
    [
        "x-user-id",
        "x-end-user",
        "x-end-user-plan",
        "x-tenant",
        "openai-organization",
        "openai-project",
        "x-forwarded-user",
        "x-tokengate-tenant",
        "X-TokenGate-Account",
        "x-tokengate-prompt-tokens",
        "x-ratelimit-remaining-tokens",
        "cookie",
    ],
)
def test_a_header_does_not_make_one_somebody_else(stack: Stack, tenant: Tenant, name: str, speak: type) -> None:
    victim = stack.tenant()
    response = speak(stack, [tenant.bearer, (name, victim.name)])
    assert response.status == 200
    if name.lower().startswith("x-tokengate-"):
        assert stack.upstream.only_request().all(name.lower()) == []
    stack.settles_to(tenant, TOTAL, requests=1)
    stack.settles_to(victim, tokens=0, requests=0)


@PROTOCOLS
@pytest.mark.parametrize(
    "names",
    [(name, name) for name in ("x-api-key", "api-key")]
    + [("X-API-Key", "x-api-key"), ("authorization", "Authorization")],
    ids="+".join,
)
@pytest.mark.parametrize("same", [True, False], ids=["one key", "two keys"])
def test_one_header_given_twice(
    stack: Stack, tenant: Tenant, names: tuple[str, str], same: bool, speak: type
) -> None:
    """Also with one value: whoever reads only the first or the last of them must not come to another answer."""
    keys = (tenant.key, tenant.key if same else stack.tenant().key)
    response = speak(stack, list(zip(names, keys, strict=True)))
    assert_refused(response, 401, "authentication_error", "ambiguous_identity")
    assert stack.upstream.requests == []


@PROTOCOLS
def test_underscores_are_no_hyphens(stack: Stack, tenant: Tenant, speak: type) -> None:
    victim = stack.tenant()
    assert speak(stack, [tenant.bearer, ("x_api_key", victim.key), ("api_key", victim.key)]).status == 200
    assert victim.key not in str(stack.upstream.only_request().headers)
    stack.settles_to(tenant, TOTAL, requests=1)
    assert_refused(speak(stack, [("x_api_key", tenant.key)]), 401, "authentication_error", "missing_identity")


@pytest.mark.parametrize(
    "spelling",
    ["Bearer\t{}", "Bearer \t {}", "bEARER {}", "  Bearer {}", "Bearer {}\t"],
    ids=repr,
)
def test_a_spelling_opens_no_second_bucket(stack: Stack, spelling: str) -> None:
    spent = stack.tenant("one-request")
    assert stack.ask(spent).status == 200
    response = over_http1(stack, [("authorization", spelling.format(spent.key))])
    assert_refused(response, 429, "rate_limit_error", "rpm_limit_exceeded")


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "{}")],
        [("authorization", "Basic {}")],
        [("authorization", "Bearer{}")],
        [("authorization", 'Bearer "{}"')],
        [("authorization", "Token {}")],
        [("x-api-key", "Bearer {}")],
        [("proxy-authorization", "Bearer {}")],
        [("x-goog-api-key", "{}")],
        [("cookie", "authorization={}")],
    ],
    ids=repr,
)
def test_another_place_or_scheme_is_refused_or_the_same_caller(stack: Stack, headers: list[tuple[str, str]]) -> None:
    spent = stack.tenant("one-request")
    assert stack.ask(spent).status == 200
    given = [(name, value.format(spent.key)) for name, value in headers]
    assert over_http1(stack, given).status in (401, 429)
    assert len(stack.upstream.requests) == 1


@pytest.mark.parametrize("name", ["key", "api_key", "api-key", "access_token"])
def test_a_key_in_the_query_is_no_identity(stack: Stack, tenant: Tenant, name: str) -> None:
    """Nor does the log show it, which is looked at after every test."""
    path = f"{chat.PATH}?{name}={tenant.key}"
    assert_refused(stack.post([], chat.body(), path), 401, "authentication_error", "missing_identity")
    victim = stack.tenant()
    assert stack.post([victim.bearer], chat.body(), path).status == 200
    stack.settles_to(victim, TOTAL, requests=1)
    stack.settles_to(tenant, tokens=0, requests=0)


def test_addresses_that_a_client_claims_open_no_bucket(stack: Stack) -> None:
    spent = stack.tenant("one-request")
    assert stack.ask(spent).status == 200
    for name in ("x-forwarded-for", "x-real-ip", "forwarded", "true-client-ip", "x-envoy-external-address"):
        for value in ("1.2.3.4", "5.6.7.8, 127.0.0.1", "::1", "for=9.9.9.9"):
            response = over_http1(stack, [spent.bearer, (name, value)])
            assert_refused(response, 429, "rate_limit_error", "rpm_limit_exceeded")


@PROTOCOLS
@pytest.mark.parametrize("size", [1 << 10, 30 << 10])
def test_a_huge_key_is_unknown(stack: Stack, size: int, speak: type) -> None:
    response = speak(stack, [("authorization", "Bearer " + "k" * size)])
    assert_refused(response, 401, "authentication_error", "unknown_key")


def test_keys_differ_by_case(stack: Stack, tenant: Tenant) -> None:
    response = over_http1(stack, [("authorization", f"Bearer {tenant.key.upper()}")])
    assert_refused(response, 401, "authentication_error", "unknown_key")


@pytest.mark.parametrize("named", ["x-api-key", "content-length", "x-tokengate-degraded"])
def test_a_header_named_as_hop_by_hop(stack: Stack, tenant: Tenant, named: str) -> None:
    """A proxy that removed it before us, or after, would change who asks or what arrives."""
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer, ("connection", f"keep-alive, {named}")], BODY))
    assert client.response().status == 200
    client.close()
    seen = stack.upstream.only_request()
    assert (seen.body, seen.all("authorization")) == (BODY, [f"Bearer {PROVIDER_KEY}"])
    stack.settles_to(tenant, TOTAL, requests=1)


def test_the_credential_named_as_hop_by_hop_is_none(stack: Stack, tenant: Tenant) -> None:
    """Envoy removes what a client names so; nobody is served without a caller."""
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer, ("connection", "keep-alive, authorization")], BODY))
    assert_refused(client.response(), 401, "authentication_error", "missing_identity")
    client.close()
    assert stack.upstream.requests == []


@PROTOCOLS
def test_a_caller_cannot_order_retries(stack: Stack, tenant: Tenant, speak: type) -> None:
    """Each would make the provider work, and bill, once more for one charge."""
    stack.upstream.handler = chat.provider_error(503)
    orders = [("x-envoy-retry-on", "5xx,gateway-error,reset"), ("x-envoy-max-retries", "3")]
    orders += [("x-envoy-hedge-on-per-try-timeout", "true"), ("x-envoy-upstream-rq-per-try-timeout-ms", "10")]
    assert speak(stack, [tenant.bearer, *orders]).status == 503
    assert len(stack.upstream.requests) == 1
    stack.settles_to(tenant, tokens=0, requests=1)


@PROTOCOLS
@pytest.mark.parametrize("name", ["x-envoy-original-path", "x-original-url", "x-rewrite-url", "x-http-method-override"])
def test_another_path_or_method_in_a_header_changes_nothing(
    stack: Stack, tenant: Tenant, name: str, speak: type
) -> None:
    assert speak(stack, [tenant.bearer, (name, "GET" if "method" in name else "/v1/models")]).status == 200
    assert stack.upstream.only_request().path == chat.PATH
    stack.settles_to(tenant, TOTAL, requests=1)
