"""What carries the requests: buffers, clusters, statistics, durations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .finding import Finding, error, warning
from .node import Node
from .parts import Gateway

BREAKER_DEFAULT = 1024
PLENTY = 10_000
LISTENER_DEFAULT = 1_048_576
WINDOW_DEFAULT = 16_777_216
CONNECT_DEFAULT_S = 5.0
CONNECT_S = 0.25
_LIMIT = "request_body_buffer_limit"
_BREAKERS = ("max_connections", "max_pending_requests", "max_requests")
_PROTOCOL_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

# A statistic of the filter for each label in its names.
_LABELLED = {
    "decision": ("wasmcustom.tokengate_requests_decision=admitted_dialect=openai_model=my_model-4.1", "admitted"),
    "dialect": ("wasmcustom.tokengate_requests_decision=admitted_dialect=openai_model=my_model-4.1", "openai"),
    "model": ("wasmcustom.tokengate_requests_decision=admitted_dialect=openai_model=my_model-4.1", "my_model-4.1"),
    "outcome": ("wasmcustom.tokengate_settles_outcome=used_model=gpt-4o", "used"),
    "class": ("wasmcustom.tokengate_settled_tokens_class=cache_read_model=gpt-4o", "cache_read"),
    "member": ("wasmcustom.tokengate_body_refusals_member=max_tokens", "max_tokens"),
    "cause": ("wasmcustom.tokengate_reserve_failures_cause=deadline", "deadline"),
    "by": ("wasmcustom.tokengate_degraded_by=filter", "filter"),
    "status": ("wasmcustom.tokengate_settle_answers_status=already_settled", "already_settled"),
    "encoding": ("wasmcustom.tokengate_tokenizer_loads_encoding=o200k_base", "o200k_base"),
}


def body_buffers(gateway: Gateway) -> Iterator[Finding]:
    """From Envoy 1.36 on `request_body_buffer_limit` overrides the bounds of HTTP/1.1 and HTTP/2."""
    overrides = [route.entry[_LIMIT] or route.host[_LIMIT] for route in gateway.routes]
    for node in overrides:
        yield from _above_bodies(gateway, node, _LIMIT, None)
    if overrides and all(overrides):
        return
    codec = gateway.manager["codec_type"].text()
    if gateway.listener and codec != "HTTP2":
        name = "per_connection_buffer_limit_bytes"
        yield from _above_bodies(gateway, gateway.listener[name], name, LISTENER_DEFAULT)
    if gateway.manager and codec != "HTTP1":
        name = "initial_stream_window_size"
        yield from _above_bodies(gateway, gateway.manager["http2_protocol_options"][name], name, WINDOW_DEFAULT)


def _above_bodies(gateway: Gateway, node: Node, name: str, default: object) -> Iterator[Finding]:
    largest = gateway.settings.max_body_bytes
    size = node.number() if node else default
    if isinstance(size, int) and size <= largest:
        given = f"{size}" if node else f"the default, {size},"
        yield error(
            node,
            f"{given} is not above max_body_bytes ({largest}): Envoy cuts in with a 413 of its own",
            f"{name}: {2 * largest}",
        )


def quota_cluster(gateway: Gateway) -> Iterator[Finding]:
    name = gateway.settings.quota_cluster
    if gateway.plugin and gateway.knows_clusters and not gateway.quota_cluster():
        yield error(
            gateway.plugin["configuration"],
            f"quota.cluster names {name}, and there is no such cluster: no request can be decided",
            f"a cluster {name} to tokengate-ratelimit, or the name of an existing one",
        )


def quota_http2(gateway: Gateway) -> Iterator[Finding]:
    cluster = gateway.quota_cluster()
    options = cluster["typed_extension_protocol_options"][_PROTOCOL_OPTIONS]
    explicit = options.at("explicit_http_config", "http2_protocol_options")
    if cluster and not (explicit or options["auto_config"] or cluster["http2_protocol_options"]):
        yield warning(
            cluster["typed_extension_protocol_options"],
            "the quota cluster speaks HTTP/1.1: every reserve under way takes a connection of its own",
            f"{_PROTOCOL_OPTIONS} with explicit_http_config: {{http2_protocol_options: {{}}}}",
        )


def quota_connect_timeout(gateway: Gateway) -> Iterator[Finding]:
    cluster = gateway.quota_cluster()
    node = cluster["connect_timeout"]
    seconds = node.seconds() if node else CONNECT_DEFAULT_S
    if cluster and seconds is not None and seconds > max(CONNECT_S, gateway.settings.quota_timeout_s):
        yield warning(
            node,
            f"a connection may take {seconds:g} s, far longer than the whole deadline of a reserve",
            f"connect_timeout: {CONNECT_S:g}s",
        )


def quota_breakers(gateway: Gateway) -> Iterator[Finding]:
    what = "a burst of reserves is answered by failure_mode instead of the quota service"
    yield from _breakers(gateway.quota_cluster(), what, is_quota=True)


def provider_breakers(gateway: Gateway) -> Iterator[Finding]:
    names = {name for route in gateway.routes for name in route.clusters()}
    for name, cluster in gateway.clusters.items():
        if name in names:
            yield from _breakers(cluster, "a burst of slow answers turns into 503s", is_quota=False)


def _breakers(cluster: Node, what: str, is_quota: bool) -> Iterator[Finding]:
    if not cluster:
        return
    breakers = cluster["circuit_breakers"]
    thresholds = breakers["thresholds"].items()
    default = next((one for one in thresholds if one["priority"].value in (None, "DEFAULT", 0)), breakers)
    limits = {name: default[name].number() if default[name] else BREAKER_DEFAULT for name in _BREAKERS}
    low = {name: limit for name, limit in limits.items() if limit is not None and limit < PLENTY}
    if low:
        severity = error if is_quota and min(low.values()) <= BREAKER_DEFAULT else warning
        yield severity(
            default,
            f"{', '.join(f'{name} {limit}' for name, limit in low.items())}: {what}",
            "thresholds: [{priority: DEFAULT, " + ", ".join(f"{name}: 100000" for name in _BREAKERS) + "}]",
        )


def stats_tags(gateway: Gateway) -> Iterator[Finding]:
    tags = gateway.bootstrap.at("stats_config", "stats_tags")
    for label, (statistic, value) in _LABELLED.items():
        if gateway.bootstrap and not any(_extracts(tag, label, statistic, value) for tag in tags.items()):
            yield warning(
                tags,
                f"no tag makes a label of `{label}` in {statistic}: every value is a metric of its own",
                f"the stats_tags entry `{label}` of tokengate's envoy.yaml",
            )


def _extracts(tag: Node, label: str, statistic: str, value: str) -> bool:
    """Envoy takes the second group as the value, or the first if there is only one."""
    try:
        match = re.search(tag["regex"].text(), statistic)
    except re.error:
        return tag["tag_name"].text() == label  # RE2's own syntax; give it the benefit of the doubt
    return tag["tag_name"].text() == label and match is not None and value in match.groups()[:2]


def durations(gateway: Gateway) -> Iterator[Finding]:
    whole = gateway.listener or gateway.manager
    for node in [below for top in (whole, *gateway.clusters.values()) for below in top.walk()]:
        name = node.path.rpartition(".")[2]
        if "json_format." in node.path or "metadata." in node.path:
            continue  # the operator's own names
        is_number = isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
        if name.lower().endswith("timeout") and (is_number or (node.text() and node.seconds() is None)):
            yield error(
                node,
                f"{node.value!r} is no duration; Envoy refuses the file",
                f"seconds with an s, as in {name}: 0s or {name}: 0.25s",
            )
