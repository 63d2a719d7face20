"""The bounds of `envoy.yaml` on what strangers may take: connections, resets, memory. They end floods, and nothing else."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import chat, h2_flood, http1, http2
from harness.envoy import Config
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Stack, running
from harness.wait import becomes, eventually

BODY = chat.encode(chat.body())
# The shipped bound is a hundred requests of one connection, and half of them.
FLOOD = 400


@contextmanager
def changed(edit: Any) -> Iterator[Stack]:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), edit=edit) as stack:
        yield stack


def monitors(config: Config) -> list[dict[str, Any]]:
    return [monitor["typed_config"] for monitor in config.document["overload_manager"]["resource_monitors"]]


def answered(connection: http1.Connection, tenant: Tenant) -> int:
    connection.send(http1.encode("POST", chat.PATH, [tenant.bearer], BODY))
    return connection.response().status


def test_connections_beyond_the_bound_are_closed_and_the_others_served() -> None:
    def three(config: Config) -> None:
        monitors(config)[0]["max_active_downstream_connections"] = 3

    with changed(three) as stack:
        tenant, port = stack.tenant(), stack.envoy.port
        first = [http1.Connection(port) for _ in range(3)]
        assert [answered(connection, tenant) for connection in first] == [200] * 3
        fourth = h2_flood.connect(port)
        assert h2_flood.is_closed(fourth)
        # The admin port is not counted: this asks it.
        name = "listener.127.0.0.1_%d.downstream_global_cx_overflow" % port
        # Counted right behind the closing.
        becomes(lambda: stack.envoy.stats("downstream_global_cx_overflow$")[name], 1)
        assert [answered(connection, tenant) for connection in first] == [200] * 3
        first.pop().close()
        becomes(lambda: stack.envoy.stats(r"^http\.llm\.downstream_cx_active$")["http.llm.downstream_cx_active"], 2)
        assert answered(http1.Connection(port), tenant) == 200
        for connection in first:
            connection.close()


def test_without_memory_new_requests_are_refused_in_the_apis_shape() -> None:
    def poor(config: Config) -> None:
        monitors(config)[1]["max_heap_size_bytes"] = 1 << 20
        actions = config.document["overload_manager"]["actions"]
        config.document["overload_manager"]["actions"] = [
            action for action in actions if action["name"] == "envoy.overload_actions.stop_accepting_requests"
        ]

    with changed(poor) as stack:
        tenant = stack.tenant()
        active = "overload.envoy.overload_actions.stop_accepting_requests.active"
        eventually(lambda: stack.envoy.stats(f"^{active}$").get(active), lambda on: on == 1)
        assert_refused(stack.ask(tenant), 503, "api_error", "gateway_overloaded")
        assert stack.upstream.requests == []
        stack.settles_to(tenant, tokens=0, requests=0)


def test_when_memory_runs_out_the_streams_that_take_it_are_reset() -> None:
    def small(config: Config) -> None:
        monitors(config)[1]["max_heap_size_bytes"] = 128 << 20

    with changed(small) as stack:
        tenant = stack.tenant()
        clients = [http2.Http2(stack.envoy.port) for _ in range(16)]
        streams = [client.start("POST", chat.PATH, [tenant.bearer]) for client in clients]
        for client, stream in zip(clients, streams, strict=True):
            try:
                client.data(stream, [b" " * (7 << 20)], end=False)
            except (http2.StreamReset, ConnectionError):
                break
        count = "envoy.overload_actions.reset_high_memory_stream.count"
        eventually(lambda: stack.envoy.stats(f"^{count}$").get(count, 0), lambda reset: reset > 0, 20)
        pressure = "overload.envoy.resource_monitors.fixed_heap.pressure"
        eventually(lambda: stack.envoy.stats(f"^{pressure}$")[pressure], lambda percent: percent < 80, 20)
        assert stack.ask(tenant).status == 200
        reset = [entry for entry in stack.envoy.access_log() if entry["details"] == "overload"]
        assert reset and {entry["flags"] for entry in reset} == {"OM"}
        for client in clients:
            client.close()


def test_a_flood_of_resets_ends_the_connection_before_it_costs_reserves(stack: Stack, tenant: Tenant) -> None:
    before = stack.service.store_calls("reserve")
    headers = h2_flood.block(chat.PATH, [tenant.bearer])
    client = h2_flood.connect(stack.envoy.port)
    client.sendall(h2_flood.requests(0, FLOOD, headers, BODY))
    assert h2_flood.is_closed(client)
    name = "http.llm.downstream_rq_too_many_premature_resets"
    assert stack.envoy.stats(f"^{name}$")[name] >= 1
    becomes(stack.envoy.active_requests, 0)
    assert stack.service.store_calls("reserve") - before < FLOOD / 10
    stack.settles_to(tenant, tokens=0, requests=0)


def test_a_connection_of_which_some_requests_are_reset_stays(stack: Stack, tenant: Tenant) -> None:
    """A client that changes its mind now and then."""
    client = http2.Http2(stack.envoy.port)
    for number in range(120):
        stream = client.start("POST", chat.PATH, [tenant.bearer])
        if number % 3 == 0:
            client.reset(stream)
        else:
            client.data(stream, [BODY], end=True)
            assert client.response().status == 200
    client.close()


def test_a_burst_of_honest_connections_is_served(stack: Stack, tenant: Tenant) -> None:
    connections = [http1.Connection(stack.envoy.port) for _ in range(256)]
    for connection in connections:
        connection.send(http1.encode("POST", chat.PATH, [tenant.bearer], BODY))
    assert [connection.response().status for connection in connections] == [200] * 256
    for connection in connections:
        connection.close()
    stack.settles_to(tenant, 256 * chat.usage_of(chat.body()).total, requests=256)


def test_a_burst_of_requests_on_one_connection_is_served(stack: Stack, tenant: Tenant) -> None:
    """As many as the connection may have at once."""
    headers = h2_flood.block(chat.PATH, [tenant.bearer])
    client = h2_flood.connect(stack.envoy.port)
    client.sendall(h2_flood.requests(0, 128, headers, BODY, reset=False))
    stack.settles_to(tenant, 128 * chat.usage_of(chat.body()).total, requests=128, timeout=20)
    client.close()
