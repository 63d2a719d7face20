"""Callers whom the proxy has verified: tokens through Envoy's own jwt_authn filter, and headers of a hop in front."""

import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from harness import chat
from harness.envoy import Config
from harness.http1 import Headers, Response
from harness.policy import Plan, Policy, Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running

ISSUER, SECRET = "https://issuer.test", b"a secret that only the issuer has, long enough for HS256"
SOURCES = [
    {
        "jwt": {
            "metadata": ["envoy.filters.http.jwt_authn", "verified"],
            "tenant": "org",
            "user": "sub",
            "plan": ["app", "plan"],
        }
    },
    {"trusted_header": {"tenant": "x-hop-tenant", "user": "x-hop-user", "plan": "x-hop-plan"}},
    {"api_key": {}},
]


def with_jwt(config: Config) -> None:
    """A token is verified where there is one; who has none goes on without."""
    key = jwt.utils.base64url_encode(SECRET).decode()
    jwks = {"keys": [{"kty": "oct", "alg": "HS256", "kid": "1", "k": key}]}
    provider = {
        "issuer": ISSUER,
        "local_jwks": {"inline_string": json.dumps(jwks)},
        "payload_in_metadata": "verified",
        "from_headers": [{"name": "authorization", "value_prefix": "Bearer "}, {"name": "x-token"}],
    }
    requirement = {"requires_any": {"requirements": [{"provider_name": "issuer"}, {"allow_missing": {}}]}}
    filters = config.listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    filters.insert(
        0,
        {
            "name": "envoy.filters.http.jwt_authn",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
                "providers": {"issuer": provider},
                "rules": [{"match": {"prefix": "/"}, "requires": requirement}],
            },
        },
    )


def accepting(document: dict[str, Any]) -> None:
    document["verified_identities"] = {"accept": True, "default_plan": "roomy"}
    one = {"count": "requests", "algorithm": "fixed_window", "every": "24h"}
    document["limits"].append({"name": "per-user", "per": ["user"], **one, "limit": {"roomy": 2, "gold": 3}})


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    policy = Policy({"roomy": Plan(), "gold": Plan()}, accepting)
    plugin = {"identity": {"sources": SOURCES}}
    with running(tmp_path_factory.mktemp("stack"), plugin, policy=policy, edit=with_jwt) as stack:
        yield stack


def token(secret: bytes = SECRET, **claims: Any) -> str:
    return jwt.encode(
        {"iss": ISSUER, "exp": int(time.time()) + 3600, **claims}, secret, algorithm="HS256", headers={"kid": "1"}
    )


def bearer(**claims: Any) -> tuple[str, str]:
    return ("authorization", f"Bearer {token(**claims)}")


def ask(stack: Stack, *headers: tuple[str, str]) -> Response:
    return stack.post(list(headers), chat.body())


def used(stack: Stack, tenant: str, plan: str) -> int:
    """Requests of the tenant that were charged."""
    limits = stack.service.explain(tenant, "gpt-4o", plan=plan)["limits"]
    return int({limit["name"]: limit["used"] for limit in limits}["account-requests"])


def test_a_tokens_claims_are_the_caller(stack: Stack) -> None:
    ann = bearer(org="acme", sub="ann")
    responses = [ask(stack, ann) for _ in range(3)]
    assert [response.status for response in responses] == [200, 200, 429]
    limit = responses[-1].error()["limit"]
    assert (limit["name"], limit["scope"], limit["plan"]) == ("per-user", {"tenant": "acme", "user": "ann"}, "roomy")
    assert ask(stack, bearer(org="acme", sub="bob")).status == 200
    # Two tenants' users of one name are two users.
    assert ask(stack, bearer(org="other", sub="ann")).status == 200
    assert (used(stack, "acme", "roomy"), used(stack, "other", "roomy")) == (3, 1)


def test_a_nested_claim_is_the_plan(stack: Stack) -> None:
    carl = bearer(org="nested", sub="carl", app={"plan": "gold"})
    assert [ask(stack, carl).status for _ in range(4)] == [200, 200, 200, 429]
    refused = ask(stack, bearer(org="nested", sub="dora", app={"plan": "platinum"}))
    assert_refused(refused, 401, "authentication_error", "invalid_identity")


def test_the_token_goes_no_further(stack: Stack) -> None:
    assert ask(stack, bearer(org="quiet")).status == 200
    assert "eyJ" not in str(stack.upstream.only_request().headers)


def test_a_token_without_a_tenant_leaves_the_caller_to_the_next_source(stack: Stack) -> None:
    tenant = stack.tenant()
    assert ask(stack, bearer(sub="ann"), ("x-api-key", tenant.key)).status == 200
    assert used(stack, tenant.name, "roomy") == 1


def test_a_token_comes_before_a_key(stack: Stack) -> None:
    tenant = stack.tenant()
    assert ask(stack, bearer(org="first", sub="ann"), ("x-api-key", tenant.key)).status == 200
    assert (used(stack, "first", "roomy"), used(stack, tenant.name, "roomy")) == (1, 0)
    assert "eyJ" not in str(stack.upstream.only_request().headers)


def test_keys_work_as_before(stack: Stack) -> None:
    tenant = stack.tenant()
    assert ask(stack, ("x-api-key", tenant.key)).status == 200
    assert_refused(ask(stack), 401, "authentication_error", "missing_identity")


def test_a_forged_token_is_nobody(stack: Stack) -> None:
    """Envoy's own answer: the filter is not asked."""
    forged = f"Bearer {token(b'another secret, as long as it has to be for HS256', org='acme')}"
    response = ask(stack, ("authorization", forged))
    assert (response.status, stack.upstream.requests) == (401, [])


@pytest.mark.parametrize(
    "claims",
    [{"org": 12.5}, {"org": "a\nb"}, {"org": "x" * 129}, {"org": "acme", "app": {"plan": 7}}],
    ids=["number", "newline", "too long", "plan is a number"],
)
def test_claims_that_are_no_names(stack: Stack, claims: dict[str, Any]) -> None:
    assert_refused(ask(stack, bearer(**claims)), 401, "authentication_error", "invalid_identity")
    assert stack.upstream.requests == []


@pytest.mark.parametrize("org", [["acme"], {"name": "acme"}, None, ""], ids=["list", "object", "null", "empty"])
def test_claims_that_are_nothing(stack: Stack, org: Any) -> None:
    """No tenant in the token, and the token is no API key either."""
    response = ask(stack, bearer(org=org, sub="ann"))
    assert_refused(response, 401, "authentication_error", None)
    assert stack.upstream.requests == []


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [([("x-hop-tenant", "hop-1")], "hop-1"), ([("X-Hop-Tenant", " hop-2 "), ("x-hop-user", "ann")], "hop-2")],
)
def test_a_hop_in_front_names_the_caller(stack: Stack, headers: Headers, tenant: str) -> None:
    assert stack.post(headers, chat.body()).status == 200
    assert used(stack, tenant, "roomy") == 1
    seen = stack.upstream.only_request()
    assert [seen.all(name) for name in ("x-hop-tenant", "x-hop-user", "x-hop-plan")] == [[], [], []]


def test_a_hops_header_comes_once(stack: Stack) -> None:
    response = ask(stack, ("x-hop-tenant", "acme"), ("x-hop-tenant", "acme"))
    assert_refused(response, 401, "authentication_error", "ambiguous_identity")


def test_where_it_is_not_listed_a_header_is_nothing(stack: Stack) -> None:
    for name in ("x-tenant", "x-jwt-payload", "x-envoy-metadata", "x-tokengate-tenant"):
        response = ask(stack, (name, Tenant("roomy-0", "roomy").name))
        assert_refused(response, 401, "authentication_error", "missing_identity")
