"""The filter itself: its place, its plugin options, its configuration, and the filters behind it."""

from __future__ import annotations

from collections.abc import Iterator

from . import settings
from .finding import Finding, error, warning
from .node import Node
from .parts import Gateway, has_type, router_index

STRING_VALUE = '"@type": type.googleapis.com/google.protobuf.StringValue, value: \'{"quota": …}\''
BUFFER = "http.buffer.v3.Buffer"
CORS = "http.cors.v3.Cors"

# Filters that see a request after it was counted, or an answer before it was read.
_CHANGE_BODIES = {
    "http.compressor.v3.Compressor": "never compresses a metered answer: accept-encoding is identity by then",
    "http.decompressor.v3.Decompressor": "unpacks a request after tokengate has counted or refused it",
    "http.wasm.v3.Wasm": "can change the body after it was counted",
    "http.golang.v3alpha.Config": "can change the body after it was counted",
    "http.dynamic_modules.v3.DynamicModuleFilter": "can change the body after it was counted",
    "http.file_system_buffer.v3.FileSystemBufferFilterConfig": "may hold whole bodies back: nothing is streamed",
    "http.grpc_json_transcoder.v3.GrpcJsonTranscoder": "writes the body anew after it was counted",
}
_BEFORE = "the filter before tokengate in http_filters, or leave it out"


def place(gateway: Gateway) -> Iterator[Finding]:
    if gateway.patch:
        yield from _place_of_patch(gateway.patch)
    elif router_index(gateway.filters) is None:
        yield error(
            gateway.manager["http_filters"],
            "there is no router filter: nothing is sent on",
            "envoy.filters.http.router as the last filter, behind tokengate",
        )
    elif router_index(gateway.behind) is None:
        yield error(
            gateway.entry,
            "the filter stands behind the router, which never calls it: nothing is metered",
            "tokengate before envoy.filters.http.router",
        )
    if gateway.entry["disabled"].is_true():
        yield warning(
            gateway.entry["disabled"],
            "the filter is off on every route that does not switch it on",
            "nothing here; switch it off on single routes with typed_per_filter_config",
        )


def _place_of_patch(patch: Node) -> Iterator[Finding]:
    operation = patch.at("patch", "operation")
    sub_filter = patch.at("match", "listener", "filter_chain", "filter", "sub_filter", "name").text()
    if patch["apply_to"].text() != "HTTP_FILTER":
        return
    if operation.text() in ("ADD", "") or (operation.text() == "INSERT_AFTER" and "router" in sub_filter):
        yield error(
            operation,
            "this puts the filter behind the router, which never calls it: nothing is metered",
            "operation: INSERT_FIRST, or INSERT_BEFORE with the subFilter envoy.filters.http.router",
        )


def holding(gateway: Gateway) -> Iterator[Finding]:
    if not gateway.plugin or gateway.settings.holds_body_only:
        return
    flag = gateway.plugin["allow_on_headers_stop_iteration"]
    if not flag.is_true():
        yield error(
            flag,
            "without it a held request never sees its body and hangs",
            "allow_on_headers_stop_iteration: true (Envoy 1.35 or newer), or `hold_at: body` where it cannot be set",
        )


def body_holding(gateway: Gateway) -> Iterator[Finding]:
    """`hold_at: body` alone lets the headers of refused requests reach the provider."""
    if not gateway.settings.holds_body_only:
        return
    for entry in gateway.behind:
        if has_type(entry, BUFFER):
            return
        mode = entry["typed_config"].message().at("processing_mode", "request_body_mode")
        if has_type(entry, "ExternalProcessor") and mode.text() not in ("", "NONE", "BUFFERED"):
            yield error(
                mode,
                "`hold_at: body` with an external processor that streams, before the buffer filter: requests hang",
                "the processor behind envoy.filters.http.buffer, which stands right behind tokengate",
            )
    else:
        yield warning(
            gateway.entry,
            "`hold_at: body` without Envoy's buffer filter: the headers of refused requests reach the provider",
            f"envoy.filters.http.buffer behind tokengate, max_request_bytes above {gateway.settings.max_body_bytes}",
        )


def verified_tokens(gateway: Gateway) -> Iterator[Finding]:
    if gateway.patch:
        return
    before = len(gateway.filters) - len(gateway.behind) - 1
    names = [entry["name"].text() for entry in gateway.filters[:before]]
    for name in gateway.settings.verifying_filters:
        if name not in names:
            yield error(
                gateway.entry,
                f"identity.sources takes the word of {name}, which does not stand before tokengate: nobody is recognised",
                f"{name} before tokengate in http_filters, with payload_in_metadata",
            )


def buffer_filter(gateway: Gateway) -> Iterator[Finding]:
    for entry in gateway.filters:
        limit = entry["typed_config"].message()["max_request_bytes"]
        size = limit.number()
        if has_type(entry, BUFFER) and size is not None and size <= gateway.settings.max_body_bytes:
            yield error(
                limit,
                f"the buffer filter refuses what max_body_bytes ({gateway.settings.max_body_bytes}) allows",
                f"max_request_bytes: {2 * gateway.settings.max_body_bytes}",
            )


def failure_policy(gateway: Gateway) -> Iterator[Finding]:
    if not gateway.plugin:
        return
    policy, legacy = gateway.plugin["failure_policy"], gateway.plugin["fail_open"]
    instead = "failure_policy: FAIL_RELOAD"
    if policy.text() == "FAIL_OPEN" or legacy.is_true():
        where = policy if policy.text() == "FAIL_OPEN" else legacy
        yield error(where, "once the filter has stopped, every request passes unmetered", instead)
    elif policy.text() != "FAIL_RELOAD":
        what = "once the filter has stopped in a worker, its requests fail until Envoy starts anew"
        yield error(policy, what if policy else f"{what} (the default is FAIL_CLOSED)", instead)


def configuration(gateway: Gateway) -> Iterator[Finding]:
    node = gateway.plugin["configuration"]
    if not gateway.plugin:
        return
    if not node:
        yield error(node, "the filter has no configuration and refuses to start", STRING_VALUE)
    elif not node["@type"].text().endswith("google.protobuf.StringValue"):
        name = node["@type"].text().rpartition(".")[2] or "no type"
        yield error(node, f"the configuration is a {name}; the filter takes JSON text only", STRING_VALUE)
    else:
        yield from _text(node["value"])


def _text(node: Node) -> Iterator[Finding]:
    try:
        values = settings.parse(node.text())
    except ValueError as why:
        yield error(node, f"this is no JSON that the filter takes: {why}", "one JSON object, for example {}")
        return
    for what, instead in settings.problems(values):
        yield error(node, f"{what}: the filter refuses the configuration", instead)


def token(gateway: Gateway) -> Iterator[Finding]:
    """The filter sees only the variables that Envoy hands over."""
    name = gateway.settings.token_env
    variables = gateway.plugin.at("vm_config", "environment_variables")
    given = [node.text() for node in variables["host_env_keys"].items()]
    given += [key for key, _ in variables["key_values"].members()]
    if name and name not in given:
        yield error(
            variables,
            f"quota.token_env names {name}, which the filter cannot see",
            f'environment_variables: {{host_env_keys: ["{name}"]}}',
        )


def filters_behind(gateway: Gateway) -> Iterator[Finding]:
    for entry in gateway.behind:
        if has_type(entry, "ExternalProcessor"):
            yield from _external_processor(entry)
        elif has_type(entry, "http.lua.v3.Lua") and any("body" in node.text() for node in entry.texts()):
            yield warning(entry, "this script can change the body after it was counted", _BEFORE)
        for message, what in _CHANGE_BODIES.items():
            if has_type(entry, message):
                yield warning(entry, f"between tokengate and the router this filter {what}", _BEFORE)


def cors(gateway: Gateway) -> Iterator[Finding]:
    """A preflight carries no key: whoever answers it has to stand before us."""
    before = len(gateway.filters) - len(gateway.behind) - 1
    if gateway.patch or any(has_type(entry, CORS) for entry in gateway.filters[:before]):
        return
    policies = [_cors_policy(level) for route in gateway.routes for level in (route.action, route.entry, route.host)]
    policies.append(_cors_policy(gateway.manager["route_config"]))
    behind = next((entry for entry in gateway.behind if has_type(entry, CORS)), None)
    for policy in policies:
        if policy:
            yield error(
                behind or policy,
                "preflights carry no key and are refused before a cors filter answers them: no web page can call",
                "envoy.filters.http.cors before tokengate in http_filters",
            )
            return


def _cors_policy(level: Node) -> Node:
    """The old spelling is a member of its own."""
    own = [config for _, config in level["typed_per_filter_config"].members() if config.is_type("cors.v3.CorsPolicy")]
    return own[0] if own else level["cors"]


def _external_processor(entry: Node) -> Iterator[Finding]:
    for name in ("request_body_mode", "response_body_mode"):
        mode = entry["typed_config"].message().at("processing_mode", name)
        if mode.text() == "FULL_DUPLEX_STREAMED":
            yield warning(
                mode,
                "some versions of Envoy from 1.35 on lose a chunk of a large body between a wasm filter and this mode "
                "(Kuadrant/wasm-shim #388); 1.40 does not",
                f"{name}: NONE, or the filter before tokengate in http_filters",
            )
        elif mode and mode.text() != "NONE":
            subject = "a request after it was counted" if name.startswith("request") else "an answer before it is read"
            yield warning(mode, f"the external processor can change {subject}", f"{name}: NONE, or {_BEFORE}")
