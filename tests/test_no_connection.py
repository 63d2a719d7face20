"""Providers to which no connection comes about, by whoever gives up first: nothing is sent, and nothing is charged."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from harness import chat, dead_ends, http1, http2
from harness.envoy import Config
from harness.oracle import oracle
from harness.policy import Tenant
from harness.routes import ROUTE, add_cluster, add_routes
from harness.stack import Stack, running
from harness.wait import becomes

SHORT, LONG = "0.4s", "60s"
BEFORE = "upstream_reset_before_response_started{"
LIMIT = chat.body()["max_tokens"]
TLS = {
    "name": "envoy.transport_sockets.tls",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"},
}
# Envoy gives up on these, and its log says why.
DETAILS = {
    "packets dropped": "connection_timeout",
    "TLS handshake unanswered": "connection_timeout",
    "TLS handshake cut": "remote_connection_failure",
}
# On these it would wait for long.
SLOW = {"slow-packets": "packets dropped", "TLS-slow": "TLS handshake unanswered"}


def endpoint(port: int) -> dict[str, object]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"cluster_name": "any", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]}


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with ExitStack() as closing:
        ports = [closing.enter_context(end()) for end in (dead_ends.dropped, dead_ends.mute, dead_ends.cut)]
        named = dict(zip(DETAILS, ports, strict=True))

        def edit(config: Config) -> None:
            for name, port in {**named, **{slow: named[like] for slow, like in SLOW.items()}}.items():
                tls = {"transport_socket": TLS} if name.startswith("TLS") else {}
                patience = LONG if name in SLOW else SHORT
                add_cluster(config, name, load_assignment=endpoint(port), connect_timeout=patience, **tls)
            retry = {"retry_on": "connect-failure", "num_retries": 1, "retry_back_off": {"base_interval": "0.001s"}}
            # Named by a header, a cluster keeps its own endpoint.
            by_name = {"cluster_header": "x-cluster"}
            routes = {
                "by name": by_name,
                "retried": {**by_name, "retry_policy": retry},
                "timeout": {**by_name, "timeout": SHORT},
                "idle": {**by_name, "idle_timeout": SHORT},
                "duration": {**by_name, "max_stream_duration": {"max_stream_duration": SHORT}},
            }
            add_routes(config, routes)

        yield closing.enter_context(running(tmp_path_factory.mktemp("no-connection"), edit=edit))


Speak = Callable[[Stack, http1.Headers, bytes], http1.Response]


def over_http1(stack: Stack, headers: http1.Headers, body: bytes) -> http1.Response:
    return http1.request(stack.envoy.port, "POST", chat.PATH, headers, body)


def over_http2(stack: Stack, headers: http1.Headers, body: bytes) -> http1.Response:
    return http2.request(stack.envoy.port, headers, [body], chat.PATH)


PROTOCOLS = pytest.mark.parametrize("speak", [over_http1, over_http2])
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "not streamed"])


def headers(tenant: Tenant, route: str, cluster: str) -> list[tuple[str, str]]:
    return [tenant.bearer, (ROUTE, route), ("x-cluster", cluster)]


@STREAMS
@PROTOCOLS
@pytest.mark.parametrize(("cluster", "details"), DETAILS.items(), ids=DETAILS)
def test_the_proxy_gives_up(
    stack: Stack, tenant: Tenant, cluster: str, details: str, speak: Speak, stream: bool
) -> None:
    response = speak(stack, headers(tenant, "by name", cluster), chat.encode(chat.body(stream=stream)))
    assert response.status == 503
    assert response.error()["type"] == "api_error"
    [entry] = stack.envoy.logged(response)
    assert entry["details"].startswith(BEFORE + details), entry
    assert "UF" in entry["flags"].split(",")
    stack.settles_to(tenant, tokens=0, requests=0)


@STREAMS
@PROTOCOLS
@pytest.mark.parametrize("cluster", SLOW)
@pytest.mark.parametrize(
    ("route", "details"),
    [("timeout", "response_timeout"), ("idle", "stream_idle_timeout"), ("duration", "max_duration_timeout")],
)
def test_the_route_gives_up_first(
    stack: Stack, tenant: Tenant, route: str, details: str, cluster: str, speak: Speak, stream: bool
) -> None:
    response = speak(stack, headers(tenant, route, cluster), chat.encode(chat.body(stream=stream)))
    assert response.status == 504
    [entry] = stack.envoy.logged(response)
    assert entry["details"] == details
    stack.settles_to(tenant, tokens=0, requests=0)


def connecting(stack: Stack, cluster: str) -> int:
    name = f"cluster.{cluster}.upstream_rq_pending_active"
    return stack.envoy.stats(f"^{name}$").get(name, 0)


@STREAMS
@pytest.mark.parametrize("cluster", SLOW)
@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
def test_the_client_gives_up_first(stack: Stack, tenant: Tenant, cluster: str, protocol: str, stream: bool) -> None:
    body, fields = chat.encode(chat.body(stream=stream)), headers(tenant, "by name", cluster)
    becomes(lambda: connecting(stack, cluster), 0)
    if protocol == "HTTP/1.1":
        first = http1.Connection(stack.envoy.port)
        first.send(http1.encode("POST", chat.PATH, fields, body))
        becomes(lambda: connecting(stack, cluster), 1)
        first.abort()
    else:
        second = http2.Http2(stack.envoy.port)
        request = second.start("POST", chat.PATH, fields)
        second.data(request, [body], end=True)
        becomes(lambda: connecting(stack, cluster), 1)
        second.reset(request)
        second.close()
    stack.settles_to(tenant, tokens=0, requests=0)


@pytest.mark.parametrize("cluster", DETAILS)
def test_after_a_retry_nobody_knows(stack: Stack, tenant: Tenant, cluster: str) -> None:
    """Of earlier attempts the filter is told nothing but their number: one of them may have been sent."""
    response = over_http1(stack, headers(tenant, "retried", cluster), chat.encode(chat.body()))
    assert response.status == 503
    stack.settles_to(tenant, oracle().prompt(chat.body()["messages"]) + LIMIT, requests=1)
