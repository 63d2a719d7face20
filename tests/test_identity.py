"""Who a caller is comes from its key alone; the key goes no further than the gate."""

import pytest

from harness import chat
from harness.envoy import PROVIDER_KEY
from harness.http1 import Headers
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack

STRANGER = Tenant("nobody", "roomy")


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([], "missing_identity"),
        ([("authorization", "")], "missing_identity"),
        ([("authorization", "Bearer ")], "missing_identity"),
        ([STRANGER.bearer], "unknown_key"),
        ([("x-api-key", STRANGER.key)], "unknown_key"),
        ([("authorization", b"Bearer \xff\xfe")], "unknown_key"),
    ],
    ids=["none", "empty", "scheme only", "unknown", "unknown x-api-key", "not UTF-8"],
)
def test_no_or_unknown_identity(stack: Stack, headers: Headers, code: str) -> None:
    assert_refused(stack.post(headers, chat.body()), 401, "authentication_error", code)
    assert stack.upstream.requests == []


def test_two_different_credentials(stack: Stack, tenant: Tenant) -> None:
    other = stack.tenant()
    for headers in (
        [tenant.bearer, ("x-api-key", other.key)],
        [("api-key", tenant.key), ("x-api-key", other.key)],
        [("x-api-key", tenant.key), ("x-api-key", other.key)],
        # Envoy joins these with a comma.
        [tenant.bearer, other.bearer],
        [tenant.bearer, tenant.bearer],
        [("authorization", f"Bearer {tenant.key},Bearer {other.key}")],
        [("authorization", f"Bearer {tenant.key}, Bearer {tenant.key}")],
    ):
        assert_refused(stack.post(headers, chat.body()), 401, "authentication_error", "ambiguous_identity")
    assert stack.upstream.requests == []


SPELLINGS = ["Bearer {}", "bearer {}", "BEARER {}", "Bearer  {}", "Bearer {} "]


def test_spellings_of_one_key_share_its_bucket(stack: Stack, tenant: Tenant) -> None:
    headers = [("authorization", spelling.format(tenant.key)) for spelling in SPELLINGS]
    headers += [("api-key", tenant.key), ("x-api-key", tenant.key), ("X-Api-Key", tenant.key)]
    for header in headers:
        assert stack.post([header], chat.body()).status == 200, header
    # The same credential twice says the same thing.
    assert stack.post([tenant.bearer, ("x-api-key", tenant.key)], chat.body()).status == 200
    count = len(headers) + 1
    stack.settles_to(tenant, count * chat.usage_of(chat.body()).total, count)


def test_two_tenants_do_not_share_a_bucket(stack: Stack) -> None:
    first, second = stack.tenant("one-request"), stack.tenant("one-request")
    assert stack.ask(first).status == 200
    assert stack.ask(first).status == 429
    assert stack.ask(second).status == 200


def test_the_body_does_not_say_who_is_asking(stack: Stack, tenant: Tenant) -> None:
    other = stack.tenant()
    claims = {"user": other.name, "metadata": {"user_id": other.name}, "safety_identifier": other.name}
    assert stack.ask(tenant, **claims).status == 200
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)
    stack.settles_to(other, tokens=0, requests=0)


def test_the_credential_is_replaced_and_our_headers_are_removed(stack: Stack, tenant: Tenant) -> None:
    headers = [
        ("x-api-key", tenant.key),
        ("x-tokengate-tenant", "somebody-else"),
        ("X-Tokengate-Degraded", "open"),
        ("x-kept", "as it is"),
        ("accept-encoding", "gzip, br"),
    ]
    assert stack.post(headers, chat.body()).status == 200
    seen = stack.upstream.only_request()
    assert seen.all("authorization") == [f"Bearer {PROVIDER_KEY}"]
    assert seen.header("x-kept") == "as it is"
    assert seen.header("accept-encoding") == "identity", "a coded answer could not be read"
    for name in ("x-api-key", "api-key", "x-tokengate-tenant", "x-tokengate-degraded"):
        assert seen.all(name) == [], name
    assert tenant.key not in str(seen.headers)


@pytest.mark.parametrize("name", ["authorization", "api-key"])
def test_every_credential_header_is_removed_also_the_one_not_used(stack: Stack, tenant: Tenant, name: str) -> None:
    value = f"Bearer {tenant.key}" if name == "authorization" else tenant.key
    assert stack.post([(name, value), ("x-api-key", tenant.key)], chat.body()).status == 200
    assert tenant.key not in str(stack.upstream.only_request().headers)
