"""Envoy's own filters for access, before ours and behind it: RBAC, JWT and ext_authz. Whom they refuse pays nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness import chat, http1, http2
from harness.envoy import Config
from harness.policy import Tenant
from harness.routes import filters
from harness.stack import Stack, running
from harness.upstream import Exchange, Upstream
from harness.wait import becomes, eventually

BODY = chat.encode(chat.body())
TOTAL = chat.usage_of(chat.body()).total
_TYPES = "type.googleapis.com/envoy.extensions.filters.http"


def rbac(place: str) -> dict[str, Any]:
    """Refuses whoever carries the header."""
    policy = {
        "permissions": [{"header": {"name": f"x-{place}-rbac", "present_match": True}}],
        "principals": [{"any": True}],
    }
    rules = {"action": "DENY", "policies": {"told-so": policy}}
    return {"name": f"rbac-{place}", "typed_config": {"@type": f"{_TYPES}.rbac.v3.RBAC", "rules": rules}}


def jwt(place: str) -> dict[str, Any]:
    """Asks whoever carries the header for a token that nobody has."""
    provider = {
        "issuer": "nobody",
        "local_jwks": {"inline_string": '{"keys":[{"kty":"oct","alg":"HS256","k":"c2VjcmV0"}]}'},
        "from_headers": [{"name": f"x-{place}-jwt"}],
    }
    match = {"prefix": "/", "headers": [{"name": f"x-{place}-jwt", "present_match": True}]}
    rules = [{"match": match, "requires": {"provider_name": "nobody"}}]
    typed = {"@type": f"{_TYPES}.jwt_authn.v3.JwtAuthentication", "providers": {"nobody": provider}, "rules": rules}
    return {"name": f"jwt-{place}", "typed_config": typed}


def ext_authz(place: str) -> dict[str, Any]:
    """Asks the authorizer below."""
    allowed = {"patterns": [{"exact": f"x-{place}-authz"}]}
    service = {
        "server_uri": {"uri": "http://authz.test", "cluster": "authz", "timeout": "10s"},
        "path_prefix": f"/{place}",
    }
    typed = {"@type": f"{_TYPES}.ext_authz.v3.ExtAuthz", "http_service": service, "allowed_headers": allowed}
    return {"name": f"authz-{place}", "typed_config": typed}


async def authorize(exchange: Exchange) -> None:
    """Refuses, or hangs up, as the header of the asking filter's place says."""
    place = exchange.request.path.split("/")[1]
    match exchange.request.header(f"x-{place}-authz"):
        case "deny":
            await exchange.reply(403, b"not you")
        case "drop":
            exchange.reset()
        case "wait":
            await exchange.gone()
        case _:
            await exchange.reply(200, b"")


@pytest.fixture(scope="module")
def authorizer() -> Iterator[Upstream]:
    server = Upstream(authorize)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory, authorizer: Upstream) -> Iterator[Stack]:
    def edit(config: Config) -> None:
        address = {"socket_address": {"address": "127.0.0.1", "port_value": authorizer.port}}
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
        load = {"cluster_name": "authz", "endpoints": endpoints}
        cluster = {"name": "authz", "type": "STATIC", "connect_timeout": "1s", "load_assignment": load}
        config.document["static_resources"]["clusters"].append(cluster)
        chain = filters(config)
        chain[0:0] = [make("before") for make in (rbac, jwt, ext_authz)]
        chain[-1:-1] = [make("after") for make in (rbac, jwt, ext_authz)]

    with running(tmp_path_factory.mktemp("access"), edit=edit) as stack:
        yield stack


Speak = Callable[[Stack, http1.Headers, bytes], http1.Response]


def over_http1(stack: Stack, headers: http1.Headers, body: bytes) -> http1.Response:
    return http1.request(stack.envoy.port, "POST", chat.PATH, headers, body)


def over_http2(stack: Stack, headers: http1.Headers, body: bytes) -> http1.Response:
    return http2.request(stack.envoy.port, headers, [body[:7], body[7:]], chat.PATH)


PROTOCOLS = pytest.mark.parametrize("speak", [over_http1, over_http2])
PLACES = pytest.mark.parametrize("place", ["before", "after"])
# The filter, what its header says, and what Envoy makes of it.
REFUSALS = {
    "rbac": ("rbac", "any", 403, "rbac_access_denied_matched_policy[told-so]"),
    "jwt": ("jwt", "no.token", 401, "jwt_authn_access_denied"),
    "ext_authz": ("authz", "deny", 403, "ext_authz_denied"),
    "ext_authz that fails": ("authz", "drop", 403, "ext_authz_error"),
}


@PROTOCOLS
@PLACES
@pytest.mark.parametrize(("name", "value", "status", "details"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("stream", [False, True])
def test_whom_they_refuse_pays_nothing(
    stack: Stack,
    tenant: Tenant,
    name: str,
    value: str,
    status: int,
    details: str,
    place: str,
    speak: Speak,
    stream: bool,
) -> None:
    response = speak(stack, [tenant.bearer, (f"x-{place}-{name}", value)], chat.encode(chat.body(stream=stream)))
    assert response.status == status
    [entry] = stack.envoy.logged(response)
    assert entry["details"].startswith(details)
    assert stack.upstream.requests == []
    # Who is refused before us was never reserved for; who is refused behind us is told the budget.
    assert (response.header("x-ratelimit-limit-requests") is None) == (place == "before")
    stack.settles_to(tenant, tokens=0, requests=0)
    assert stack.service.account_requests(tenant.name) == 0


@PROTOCOLS
def test_whom_they_let_pass_is_charged_once(stack: Stack, tenant: Tenant, speak: Speak) -> None:
    assert speak(stack, [tenant.bearer], BODY).status == 200
    stack.settles_to(tenant, TOTAL, requests=1)


def test_the_caller_s_key_is_not_shown_to_a_filter_behind_ours(
    stack: Stack, tenant: Tenant, authorizer: Upstream
) -> None:
    authorizer.requests.clear()
    assert over_http1(stack, [tenant.bearer], BODY).status == 200
    [first, second] = authorizer.requests
    assert first.path.startswith("/before") and second.path.startswith("/after")
    assert tenant.key not in str(second.headers)


@PLACES
def test_a_client_that_leaves_while_it_is_asked_about(stack: Stack, tenant: Tenant, place: str) -> None:
    client = http1.Connection(stack.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer, (f"x-{place}-authz", "wait")], BODY))
    if place == "after":
        eventually(lambda: stack.service.bucket(tenant.name).open_holds, lambda held: held == 1)
    else:
        becomes(stack.envoy.active_requests, 1)
    client.abort()
    becomes(stack.envoy.active_requests, 0)
    assert stack.upstream.requests == []
    stack.settles_to(tenant, tokens=0, requests=0)
