"""What can be wrong with an Envoy configuration: edits to the one that ships, and the finding that each must give.

An edit is `ROOT path/to/key: value`. DROP removes the key; `+` puts an HTTP filter right behind ours, or a route
first with `first: True`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DROP = object()
ENVIRON = {"PROVIDER_KEY": "sk-test"}


@dataclass(frozen=True)
class Case:
    check: str
    edits: dict[str, Any]
    says: str
    where: str = ""
    severity: str = "error"
    also: tuple[str, ...] = ()
    """Other checks that the same edits concern."""


def _hcm(document: Any) -> Any:
    return _listener(document)["filter_chains"][0]["filters"][0]["typed_config"]


def _listener(document: Any) -> Any:
    return document["static_resources"]["listeners"][0]


def _host(document: Any) -> Any:
    return _hcm(document)["route_config"]["virtual_hosts"][0]


ROOTS: dict[str, Callable[[Any], Any]] = {
    "bootstrap": lambda document: document,
    "listener": _listener,
    "hcm": _hcm,
    "host": _host,
    "entry": lambda document: _host(document)["routes"][0],
    "route": lambda document: _host(document)["routes"][0]["route"],
    "plugin": lambda document: _hcm(document)["http_filters"][0]["typed_config"]["config"],
    "provider": lambda document: document["static_resources"]["clusters"][0],
    "quota": lambda document: document["static_resources"]["clusters"][1],
}


def error(check: str, edits: dict[str, Any], says: str, where: str = "", also: tuple[str, ...] = ()) -> Case:
    return Case(check, edits, says, where, "error", also)


def warning(check: str, edits: dict[str, Any], says: str, where: str = "", also: tuple[str, ...] = ()) -> Case:
    return Case(check, edits, says, where, "warning", also)


def http_filter(message: str, **config: Any) -> dict[str, Any]:
    kind = f"type.googleapis.com/envoy.extensions.filters.{message}"
    return {"name": "another", "typed_config": {"@type": kind, **config}}


def breakers(**limits: int) -> dict[str, Any]:
    plenty = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 100000)
    return {"thresholds": [{**plenty, **limits}]}


STRUCT = {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {}}
SWITCHED_OFF = {
    "tokengate": {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}, "disabled": True}
}
FORMAT = "hcm access_log/0/typed_config/log_format/json_format"
MAPPER = "hcm local_reply_config/mappers/0/filter"
RUNTIME = "bootstrap layered_runtime/layers/0/static_layer"
HEAP = "bootstrap overload_manager/actions"
CORS_POLICY = {
    "envoy.filters.http.cors": {"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy"}
}
CORS = "http.cors.v3.Cors"
BODY = {"filter hold_at": "body"}
BUFFER = "http.buffer.v3.Buffer"
STREAMING = http_filter(
    "http.ext_proc.v3.ExternalProcessor", processing_mode={"request_body_mode": "FULL_DUPLEX_STREAMED"}
)

CASES = [
    # The filter.
    error("place", {"hcm http_filters/1": DROP}, "no router", "typed_config.http_filters"),
    warning("place", {"hcm http_filters/0/disabled": True}, "off on every route", "http_filters[0].disabled"),
    error("holding", {"plugin allow_on_headers_stop_iteration": DROP}, "hangs | allow_on_headers_stop_iteration: true",
          "http_filters[0].typed_config.config.allow_on_headers_stop_iteration"),
    error("holding", {"plugin allow_on_headers_stop_iteration": False}, "hangs"),
    warning("body_holding", BODY, "headers of refused requests", "http_filters[0]"),
    error("body_holding", {**BODY, "hcm http_filters/+": STREAMING}, "requests hang",
          "http_filters[1].typed_config.processing_mode.request_body_mode", also=("filters_behind",)),
    error("buffer_filter", {**BODY, "hcm http_filters/+": http_filter(BUFFER, max_request_bytes=1048576)},
          "max_body_bytes (8388608)", "http_filters[1].typed_config.max_request_bytes"),
    error("failure_policy", {"plugin failure_policy": DROP}, "the default is FAIL_CLOSED", "config.failure_policy"),
    error("failure_policy", {"plugin failure_policy": "FAIL_CLOSED"}, "failure_policy: FAIL_RELOAD"),
    error("failure_policy", {"plugin failure_policy": "FAIL_OPEN"}, "passes unmetered"),
    error("failure_policy", {"plugin failure_policy": DROP, "plugin fail_open": True}, "unmetered", "fail_open"),
    error("configuration", {"plugin configuration": DROP}, "no configuration"),
    error("configuration", {"plugin configuration": STRUCT}, "is a Struct", "config.configuration"),
    error("configuration", {"plugin configuration": {"quota": {}}}, "is a no type"),
    error("configuration", {"plugin configuration/value": "{quota: {}}"}, "no JSON", "configuration.value"),
    error("configuration", {"plugin configuration/value": ""}, "no JSON"),
    error("configuration", {"plugin configuration/value": "[]"}, "no JSON object"),
    error("configuration", {"plugin configuration/value": '{"mode": "enforce", "mode": "enforce"}'},
          "'mode' is given twice"),
    error("configuration", {"filter hold": "body"}, "unknown key `hold`"),
    error("configuration", {"filter quota/clustre": "x"}, "unknown key `quota.clustre`"),
    error("configuration", {"filter hold_at": "never"}, "`hold_at` is 'never'"),
    error("configuration", {"filter overrun": "warn"}, "`overrun` is 'warn'"),
    error("verified_tokens", {"filter identity/sources": [{"jwt": {"tenant": "org"}}]},
          "envoy.filters.http.jwt_authn, which does not stand before"),
    error("configuration", {"filter outbox": 4096}, "`outbox` is no object"),
    error("configuration", {"filter quota/timeout_ms": "100"}, "a whole number from 1 to 10000"),
    error("token", {"filter quota/token_env": "QUOTA_TOKEN"}, "QUOTA_TOKEN", "vm_config.environment_variables"),
    warning("filters_behind", {"hcm http_filters/+": http_filter(
        "http.ext_proc.v3.ExternalProcessor", processing_mode={"request_body_mode": "FULL_DUPLEX_STREAMED"})},
        "Kuadrant/wasm-shim #388", "http_filters[1].typed_config.processing_mode.request_body_mode"),
    warning("filters_behind", {"hcm http_filters/+": http_filter(
        "http.ext_proc.v3.ExternalProcessor", processing_mode={"response_body_mode": "BUFFERED"})},
        "before it is read"),
    warning("filters_behind", {"hcm http_filters/+": http_filter("http.compressor.v3.Compressor")},
            "never compresses"),
    warning("filters_behind", {"hcm http_filters/+": http_filter("http.wasm.v3.Wasm")}, "after it was counted"),
    warning("filters_behind", {"hcm http_filters/+": http_filter(
        "http.lua.v3.Lua", default_source_code={"inline_string": "handle:body():setBytes('')"})}, "this script"),
    error("cors", {"host typed_per_filter_config": CORS_POLICY}, "can call | envoy.filters.http.cors before",
          "virtual_hosts[0].typed_per_filter_config.envoy.filters.http.cors"),
    error("cors", {"hcm route_config/typed_per_filter_config": CORS_POLICY}, "no web page can call"),
    error("cors", {"entry typed_per_filter_config": CORS_POLICY, "hcm http_filters/+": http_filter(CORS)},
          "no web page can call", "http_filters[1]"),
    error("cors", {"route cors": {"allow_methods": "POST"}}, "no web page can call", "route.cors"),
    # Buffers, clusters, statistics.
    error("body_buffers", {"listener per_connection_buffer_limit_bytes": DROP}, "the default, 1048576,",
          "listeners[0].per_connection_buffer_limit_bytes"),
    error("body_buffers", {"listener per_connection_buffer_limit_bytes": 8388608}, "limit_bytes: 16777216"),
    error("body_buffers", {"hcm http2_protocol_options/initial_stream_window_size": 65536}, "65536 is not above",
          "http2_protocol_options.initial_stream_window_size"),
    error("body_buffers", {"filter max_body_bytes": 16777216, "hcm codec_type": "HTTP2",
                           "hcm http2_protocol_options": DROP}, "the default, 16777216,", also=("concurrent_streams",)),
    error("body_buffers", {"host request_body_buffer_limit": 4096}, "4096",
          "virtual_hosts[0].request_body_buffer_limit"),
    error("quota_cluster", {"filter quota/cluster": "elsewhere"}, "there is no such cluster", "config.configuration"),
    warning("quota_http2", {"quota typed_extension_protocol_options": DROP}, "HTTP/1.1",
            "clusters[1].typed_extension_protocol_options"),
    warning("quota_connect_timeout", {"quota connect_timeout": DROP}, "may take 5 s", "clusters[1].connect_timeout"),
    warning("quota_connect_timeout", {"quota connect_timeout": "2.5s"}, "may take 2.5 s"),
    error("quota_breakers", {"quota circuit_breakers": DROP}, "max_requests 1024", "clusters[1].circuit_breakers"),
    error("quota_breakers", {"quota circuit_breakers": breakers(max_pending_requests=1024)},
          "max_pending_requests 1024"),
    warning("quota_breakers", {"quota circuit_breakers": breakers(max_requests=2000)}, "max_requests 2000"),
    warning("provider_breakers", {"provider circuit_breakers": DROP}, "503s", "clusters[0].circuit_breakers"),
    error("durations", {"route timeout": 0}, "0 is no duration", "route.timeout"),
    error("durations", {"quota connect_timeout": "250ms"}, "connect_timeout: 0.25s"),
    warning("stats_tags", {"bootstrap stats_config": DROP}, "label of `decision`", "stats_config.stats_tags"),
    warning("stats_tags", {"bootstrap stats_config/stats_tags/2/tag_name": "result"}, "label of `outcome`"),
    # Routes.
    warning("metered_route", {"entry match": {"prefix": "/v2/"}}, "/v1/chat/completions", "route_config"),
    warning("metered_route", {"entry typed_per_filter_config": SWITCHED_OFF}, "nothing is metered"),
    error("route_timeout", {"route timeout": DROP}, "(15 s) cuts long answers | timeout: 0s",
          "routes[0].route.timeout"),
    error("route_timeout", {"route timeout": "60s"}, "longer than 60 s"),
    warning("route_timeout", {"route timeout": "900s"}, "longer than 900 s"),
    error("stream_duration", {"route max_stream_duration": {"max_stream_duration": "300s"}}, "300 s"),
    error("stream_duration", {"hcm common_http_protocol_options/max_stream_duration": "30s"}, "30 s"),
    error("idle_timeout", {"route idle_timeout": "300s"}, "idle_timeout: 660s", "routes[0].route.idle_timeout"),
    error("idle_timeout", {"route idle_timeout": DROP, "hcm stream_idle_timeout": DROP}, "300 s",
          also=("stream_idle_timeout",)),
    warning("idle_timeout", {"route idle_timeout": "0s"}, "for ever"),
    warning("internal_redirect", {"route internal_redirect_policy": {}}, "gets 401", "route.internal_redirect_policy"),
    warning("hedging", {"route hedge_policy": {"hedge_on_per_try_timeout": True}}, "bill", "route.hedge_policy"),
    warning("hedging", {"host hedge_policy": {"hedge_on_per_try_timeout": True}}, "bill",
            "virtual_hosts[0].hedge_policy"),
    warning("per_try_timeout", {"route retry_policy": {"retry_on": "5xx", "per_try_timeout": "10s"}}, "repeated",
            "retry_policy.per_try_timeout"),
    warning("mirroring", {"route request_mirror_policies": [{"cluster": "provider"}]}, "mirror"),
    warning("provider_credential", {"entry request_headers_to_add": DROP}, "no credential", "request_headers_to_add"),
    warning("provider_credential", {"filter identity/credential": "forward",
                                    "entry request_headers_to_add/0/append_action": DROP}, "a second one"),
    warning("environment", {"entry request_headers_to_add/0/header/value": "Bearer %ENVIRONMENT(NO_SUCH_KEY)%"},
            "NO_SUCH_KEY is not set", "header.value"),
    # The connection manager.
    warning("stream_idle_timeout", {"hcm stream_idle_timeout": DROP}, "stream_idle_timeout: 660s"),
    error("stream_idle_timeout", {"hcm stream_idle_timeout": "0s"}, "for ever"),
    warning("request_timeout", {"hcm request_timeout": DROP}, "request_timeout: 120s", "typed_config.request_timeout"),
    warning("request_timeout", {"hcm request_timeout": "0s"}, "in memory"),
    error("normalize_path", {"hcm normalize_path": DROP}, "normalize_path: true", "typed_config.normalize_path"),
    error("merge_slashes", {"hcm merge_slashes": False}, "merge_slashes: true", "typed_config.merge_slashes"),
    error("escaped_slashes", {"hcm path_with_escaped_slashes_action": DROP}, "UNESCAPE_AND_FORWARD"),
    error("escaped_slashes", {"hcm path_with_escaped_slashes_action": "KEEP_UNCHANGED"}, "%2F"),
    warning("remote_address", {"hcm use_remote_address": DROP}, "x-forwarded-for", "use_remote_address"),
    warning("request_id", {"hcm always_set_request_id_in_response": DROP}, "x-request-id"),
    error("continue_100", {"hcm proxy_100_continue": True}, "proxy_100_continue: false", "proxy_100_continue"),
    warning("ignored_upgrades", {"hcm http_protocol_options": DROP}, "get 403 | ignore_http_11_upgrade",
            "http_protocol_options.ignore_http_11_upgrade"),
    warning("ignored_upgrades", {"hcm http_protocol_options/ignore_http_11_upgrade": [{"prefix": "tls/"}]}, "TLS/1.2"),
    warning("access_log", {"hcm access_log": DROP}, "no access log", "typed_config.access_log"),
    error("logged_credentials", {f"{FORMAT}/key": "%REQ(AUTHORIZATION)%"}, "authorization", "json_format.key"),
    error("logged_credentials", {f"{FORMAT}/key": "%REQ(X-USER?X-API-KEY):20%"}, "x-api-key"),
    error("logged_credentials", {f"{FORMAT}/key": "%CEL(request.headers['api-key'])%"}, "api-key"),
    error("logged_credentials", {"filter identity/sources": [{"api_key": {"headers": ["X-My-Key"]}}],
                                 f"{FORMAT}/key": "%REQ(x-my-key)%"}, "x-my-key"),
    warning("local_replies", {"hcm local_reply_config": DROP}, "plain text", "local_reply_config"),
    warning("rewritten_refusals", {MAPPER + "/extension_filter/typed_config/expression": "response.code == 413"},
            "startsWith('tokengate_')", "mappers[0].filter"),
    warning("rewritten_refusals", {MAPPER: {"status_code_filter": {"comparison": {
        "op": "EQ", "value": {"default_value": 413, "runtime_key": "x"}}}}}, "rewrites tokengate's refusals"),
    warning("rewritten_refusals", {"hcm local_reply_config/body_format": {"text_format": "x"}}, "no longer see"),
    # Bounds on what strangers may take.
    warning("connection_bound", {"bootstrap overload_manager/resource_monitors/0": DROP}, "every file descriptor",
            "overload_manager"),
    warning("connection_bound", {"bootstrap overload_manager": DROP}, "global_downstream_max_connections",
            also=("memory_bound",)),
    warning("admin_connections", {"bootstrap admin/ignore_global_conn_limit": DROP}, "closed to you too",
            "admin.ignore_global_conn_limit"),
    warning("memory_bound", {"bootstrap overload_manager/resource_monitors/1": DROP}, "the kernel ends Envoy",
            "overload_manager.resource_monitors"),
    warning("memory_bound", {f"{HEAP}/2": DROP}, "stop_accepting_requests", "overload_manager.actions"),
    warning("memory_bound", {f"{HEAP}/2/triggers/0/name": "envoy.resource_monitors.cpu_utilization"}, "none left"),
    warning("heavy_streams", {f"{HEAP}/1": DROP}, "reset_high_memory_stream", "overload_manager.actions"),
    warning("heavy_streams", {"bootstrap overload_manager/buffer_factory_config": DROP}, "resets none",
            "buffer_factory_config.minimum_account_to_track_power_of_two"),
    warning("memory_release", {"bootstrap memory_allocator_manager": DROP}, "stays with Envoy",
            "memory_allocator_manager.bytes_to_release"),
    warning("reset_bound", {f"{RUNTIME}/overload": DROP}, "the default, 500,", "layered_runtime"),
    warning("reset_bound", {f"{RUNTIME}/overload/premature_reset_total_stream_count": 100000}, "is 100000",
            "static_layer.overload.premature_reset_total_stream_count"),
    warning("requests_per_cycle", {f"{RUNTIME}/http": DROP}, "begun in one go", "layered_runtime"),
    warning("requests_per_cycle", {f"{RUNTIME}/http/max_requests_per_io_cycle": 0}, "everybody else waits",
            "static_layer.http.max_requests_per_io_cycle"),
    warning("concurrent_streams", {"hcm http2_protocol_options/max_concurrent_streams": DROP}, "streams: 128",
            "http2_protocol_options.max_concurrent_streams"),
    warning("concurrent_streams", {"hcm http2_protocol_options/max_concurrent_streams": 100000}, "as many requests"),
    warning("headers_timeout", {"hcm request_headers_timeout": DROP}, "request_headers_timeout: 10s"),
    warning("headers_timeout", {"hcm request_headers_timeout": "0s"}, "for ever"),
]  # fmt: skip


def _behind_the_router() -> Case:
    router = http_filter("http.router.v3.Router")
    return error("place", {"hcm http_filters/+": {"first": True, **router}, "hcm http_filters/2": DROP},
                 "behind the router", "http_filters[1]")  # fmt: skip


CASES.append(_behind_the_router())
