"""Bounds on what strangers may take of the proxy before anything is known of them: connections, memory, resets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from .finding import Finding, warning
from .node import Node
from .parts import ABSENT, Gateway

RESETS_DEFAULT = 500
MANY_STREAMS = 1000
_CONNECTIONS = "downstream_connections.v3.DownstreamConnectionsConfig"
_MEMORY = ("fixed_heap.v3.FixedHeapConfig", "cgroup_memory.v3.CgroupMemoryConfig")
_ACTIONS = "envoy.overload_actions."
_SHIPPED = "as in tokengate's envoy.yaml"


def connection_bound(gateway: Gateway) -> Iterator[Finding]:
    if not gateway.bootstrap or _connection_bound(gateway) or _is_hidden(gateway):
        return
    yield warning(
        gateway.bootstrap["overload_manager"],
        "nothing bounds the connections: whoever opens enough of them takes every file descriptor, and nobody else "
        "gets in",
        f"the resource monitor envoy.resource_monitors.global_downstream_max_connections, {_SHIPPED}",
    )


def _connection_bound(gateway: Gateway) -> Node:
    for monitor in _monitors(gateway):
        if monitor["typed_config"].is_type(_CONNECTIONS):
            return monitor
    listener = gateway.listener["name"].text()
    return _runtime(gateway, "overload.global_downstream_max_connections") or _runtime(
        gateway, f"envoy.resource_limits.listener.{listener}.connection_limit"
    )


def admin_connections(gateway: Gateway) -> Iterator[Finding]:
    admin = gateway.bootstrap["admin"]
    if admin["address"] and _connection_bound(gateway) and not admin["ignore_global_conn_limit"].is_true():
        yield warning(
            admin["ignore_global_conn_limit"],
            "once the bound on connections is reached, the admin port is closed to you too",
            "ignore_global_conn_limit: true",
        )


def memory_bound(gateway: Gateway) -> Iterator[Finding]:
    if not gateway.bootstrap:
        return
    manager = gateway.bootstrap["overload_manager"]
    if not any(_measures_memory(monitor) for monitor in _monitors(gateway)):
        yield warning(
            manager["resource_monitors"],
            "nothing bounds the memory: bodies that never end and answers that nobody reads grow until the kernel ends "
            "Envoy, with all requests and the settles that have not left",
            f"the resource monitor envoy.resource_monitors.fixed_heap, {_SHIPPED}",
        )
    elif not _acts_on_memory(gateway, "stop_accepting_requests"):
        yield warning(
            manager["actions"],
            "memory is measured, and new requests are taken on when there is none left",
            f"the action {_ACTIONS}stop_accepting_requests with a trigger by that monitor, {_SHIPPED}",
        )


def heavy_streams(gateway: Gateway) -> Iterator[Finding]:
    """Only with a bound there is something to act at."""
    if not any(_measures_memory(monitor) for monitor in _monitors(gateway)):
        return
    manager = gateway.bootstrap["overload_manager"]
    tracked = manager.at("buffer_factory_config", "minimum_account_to_track_power_of_two")
    if not _acts_on_memory(gateway, "reset_high_memory_stream"):
        yield warning(
            manager["actions"],
            "when memory runs out everybody is refused, and the few streams that take it go on",
            f"the action {_ACTIONS}reset_high_memory_stream, {_SHIPPED}",
        )
    elif not tracked.number():
        yield warning(
            tracked,
            "Envoy does not know which streams take the memory, so it resets none",
            "buffer_factory_config: {minimum_account_to_track_power_of_two: 20}",
        )


def memory_release(gateway: Gateway) -> Iterator[Finding]:
    released = gateway.bootstrap.at("memory_allocator_manager", "bytes_to_release")
    if gateway.bootstrap and not released.number():
        yield warning(
            released,
            "the memory that a flood took stays with Envoy when the flood is over",
            "memory_allocator_manager: {bytes_to_release: 67108864, memory_release_interval: 1s}",
        )


def reset_bound(gateway: Gateway) -> Iterator[Finding]:
    key = "overload.premature_reset_total_stream_count"
    limit = _runtime(gateway, key)
    count = limit.number() if limit else RESETS_DEFAULT
    if _asks_runtime(gateway) and (count is None or count >= RESETS_DEFAULT):
        given = f"{count}" if limit else f"the default, {RESETS_DEFAULT},"
        yield warning(
            limit or gateway.bootstrap["layered_runtime"],
            f"{key} is {given}: a connection may open and reset half as many requests before it is closed, and each "
            "costs a reserve and a release",
            f"overload: {{premature_reset_total_stream_count: 100}} in a static_layer, {_SHIPPED}",
        )


def requests_per_cycle(gateway: Gateway) -> Iterator[Finding]:
    key = "http.max_requests_per_io_cycle"
    limit = _runtime(gateway, key)
    if _asks_runtime(gateway) and not limit.number():
        yield warning(
            limit or gateway.bootstrap["layered_runtime"],
            "thousands of requests that come in one go on one connection are begun in one go, those that are reset "
            "right behind them too; everybody else waits",
            f"http: {{max_requests_per_io_cycle: 1}} in a static_layer, {_SHIPPED}",
        )


def concurrent_streams(gateway: Gateway) -> Iterator[Finding]:
    limit = gateway.manager["http2_protocol_options"]["max_concurrent_streams"]
    count = limit.number()
    if gateway.manager and _speaks_http2(gateway) and (count is None or count > MANY_STREAMS):
        yield warning(
            limit,
            "one connection may hold as many requests as it likes, each with its body in memory",
            "max_concurrent_streams: 128",
        )


def headers_timeout(gateway: Gateway) -> Iterator[Finding]:
    node = gateway.manager["request_headers_timeout"]
    if gateway.manager and (not node or node.seconds() == 0):
        yield warning(
            node,
            "a connection may take for ever to send the headers of a request, and counts against the bound meanwhile",
            "request_headers_timeout: 10s",
        )


def _monitors(gateway: Gateway) -> list[Node]:
    return gateway.bootstrap.at("overload_manager", "resource_monitors").items()


def _measures_memory(monitor: Node) -> bool:
    return any(monitor["typed_config"].is_type(message) for message in _MEMORY)


def _acts_on_memory(gateway: Gateway, action: str) -> bool:
    names = {monitor["name"].text() for monitor in _monitors(gateway) if _measures_memory(monitor)}
    return any(
        trigger["name"].text() in names
        for one in gateway.bootstrap.at("overload_manager", "actions").items()
        if one["name"].text() == _ACTIONS + action
        for trigger in one["triggers"].items()
    )


def _speaks_http2(gateway: Gateway) -> bool:
    return gateway.manager["codec_type"].text() != "HTTP1"


def _asks_runtime(gateway: Gateway) -> bool:
    return bool(gateway.bootstrap) and _speaks_http2(gateway) and not _is_hidden(gateway)


def _layers(gateway: Gateway) -> list[Node]:
    return gateway.bootstrap.at("layered_runtime", "layers").items()


def _is_hidden(gateway: Gateway) -> bool:
    """Whether values may come from where this cannot look."""
    return any(layer["rtds_layer"] or layer["disk_layer"] for layer in _layers(gateway))


def _runtime(gateway: Gateway, key: str) -> Node:
    """Of several layers the last decides."""
    found = [_value(layer["static_layer"], key.split(".")) for layer in _layers(gateway)]
    return next((node for node in reversed(found) if node), ABSENT)


def _value(node: Node, parts: list[str]) -> Optional[Node]:
    """A key may be written with dots, in levels, or as a mixture."""
    for length in range(len(parts), 0, -1):
        child = node[".".join(parts[:length])]
        if child:
            return child if length == len(parts) else _value(child, parts[length:])
    return None
