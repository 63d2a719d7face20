"""The table of all checks, in the order of their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from . import check_connection, check_filter, check_overload, check_resources, check_routes
from .finding import Finding, error
from .node import Node
from .parts import Gateway, gateways

CHECKS: tuple[Callable[[Gateway], Iterator[Finding]], ...] = (
    check_filter.place,
    check_filter.holding,
    check_filter.body_holding,
    check_filter.verified_tokens,
    check_filter.buffer_filter,
    check_filter.failure_policy,
    check_filter.configuration,
    check_filter.token,
    check_filter.filters_behind,
    check_filter.cors,
    check_resources.body_buffers,
    check_resources.quota_cluster,
    check_resources.quota_http2,
    check_resources.quota_connect_timeout,
    check_resources.quota_breakers,
    check_resources.provider_breakers,
    check_resources.durations,
    check_resources.stats_tags,
    check_routes.metered_route,
    check_routes.route_timeout,
    check_routes.stream_duration,
    check_routes.idle_timeout,
    check_routes.internal_redirect,
    check_routes.hedging,
    check_routes.per_try_timeout,
    check_routes.mirroring,
    check_routes.provider_credential,
    check_routes.environment,
    check_connection.stream_idle_timeout,
    check_connection.request_timeout,
    check_connection.normalize_path,
    check_connection.merge_slashes,
    check_connection.escaped_slashes,
    check_connection.remote_address,
    check_connection.request_id,
    check_connection.continue_100,
    check_connection.ignored_upgrades,
    check_connection.access_log,
    check_connection.logged_credentials,
    check_connection.local_replies,
    check_connection.rewritten_refusals,
    check_overload.connection_bound,
    check_overload.admin_connections,
    check_overload.memory_bound,
    check_overload.heavy_streams,
    check_overload.memory_release,
    check_overload.reset_bound,
    check_overload.requests_per_cycle,
    check_overload.concurrent_streams,
    check_overload.headers_timeout,
)


def examine(documents: list[Node], environ: Mapping[str, str]) -> tuple[list[Finding], list[str]]:
    """The findings of a file, and which of its parts another file must hold."""
    found = gateways(documents, environ)
    if not found:
        nothing = "no HTTP connection manager holds the tokengate filter: nothing is metered"
        instead = "the filter `tokengate` of tokengate's envoy.yaml, before the router"
        return [error(documents[0]["static_resources"], nothing, instead)], []
    # Listeners that share a cluster have its findings in common.
    findings = dict.fromkeys(one for gateway in found for check in CHECKS for one in check(gateway))
    unseen = dict.fromkeys(part for gateway in found for part in gateway.unseen())
    return list(findings), list(unseen)
