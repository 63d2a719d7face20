"""The routes that metered requests take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .finding import Finding, error, warning
from .node import Node
from .parts import Gateway
from .routes import METERED_PATHS

# The official SDKs wait that long.
LONG_S = 600
STREAM_IDLE_DEFAULT_S = 300.0
_ENVIRONMENT = re.compile(r"%ENVIRONMENT\(([^)]+)\)%")
_CREDENTIALS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")


def metered_route(gateway: Gateway) -> Iterator[Finding]:
    config = gateway.manager["route_config"]
    if config and not gateway.routes:
        yield warning(
            config,
            "no route takes metered requests through the filter: nothing is metered",
            f"a route that matches {METERED_PATHS[0]}, with the filter switched on",
        )


def route_timeout(gateway: Gateway) -> Iterator[Finding]:
    for route in gateway.routes:
        node = route.action["timeout"]
        if not node:
            yield error(node, "the default (15 s) cuts long answers", "timeout: 0s")
        else:
            yield from _too_short(node, "timeout: 0s")


def stream_duration(gateway: Gateway) -> Iterator[Finding]:
    limits = [route.action.at("max_stream_duration", "max_stream_duration") for route in gateway.routes]
    limits.append(gateway.manager.at("common_http_protocol_options", "max_stream_duration"))
    for node in limits:
        yield from _too_short(node, "no max_stream_duration")


def _too_short(node: Node, instead: str) -> Iterator[Finding]:
    seconds = node.seconds()
    if not seconds:
        return
    if seconds < LONG_S:
        yield error(node, f"it cuts answers that take longer than {seconds:g} s; SDKs wait {LONG_S} s", instead)
    else:
        yield warning(node, f"it cuts streams that take longer than {seconds:g} s", instead)


def idle_timeout(gateway: Gateway) -> Iterator[Finding]:
    inherited = gateway.manager["stream_idle_timeout"]
    for route in gateway.routes:
        node = route.action["idle_timeout"]
        decides = node or inherited
        seconds = decides.seconds() if decides else STREAM_IDLE_DEFAULT_S
        if seconds is None:
            continue
        if seconds == 0 and node:
            yield warning(node, "requests that a stopped filter held hang for ever", "idle_timeout: 660s")
        elif 0 < seconds < LONG_S:
            yield error(
                node,
                f"a provider that thinks for longer than {seconds:g} s is cut; SDKs wait {LONG_S} s",
                "idle_timeout: 660s",
            )


def internal_redirect(gateway: Gateway) -> Iterator[Finding]:
    for route in gateway.routes:
        policy, legacy = route.action["internal_redirect_policy"], route.action["internal_redirect_action"]
        if policy or legacy.text() == "HANDLE_INTERNAL_REDIRECT":
            yield warning(
                policy or legacy,
                "internal redirects do not work behind the filter: the second pass has no caller's key and gets 401",
                "no internal_redirect_policy on metered routes",
            )


def hedging(gateway: Gateway) -> Iterator[Finding]:
    for route in gateway.routes:
        policy = route.policy("hedge_policy")
        if policy:
            yield warning(
                policy,
                "hedging makes the provider work, and bill, more than once for one charge",
                "no hedge_policy on metered routes",
            )


def per_try_timeout(gateway: Gateway) -> Iterator[Finding]:
    for route in gateway.routes:
        for name in ("per_try_timeout", "per_try_idle_timeout"):
            node = route.policy("retry_policy")[name]
            if node and node.seconds() != 0:
                yield warning(
                    node,
                    "a slow try is repeated: the provider works, and bills, more than once for one charge",
                    f"no {name} on metered routes",
                )


def mirroring(gateway: Gateway) -> Iterator[Finding]:
    for route in gateway.routes:
        policies = route.policy("request_mirror_policies")
        if policies.items():
            yield warning(
                policies,
                "mirrored requests are sent, and billed where the mirror is a paid provider, beside the one charge",
                "no request_mirror_policies on metered routes",
            )


def provider_credential(gateway: Gateway) -> Iterator[Finding]:
    """The caller's key is taken out, so Envoy has to put the provider's in; or leave the caller's alone."""
    by_filter = any(
        entry["typed_config"].is_type("CredentialInjector") or entry["typed_config"].is_type("HeaderMutation")
        for entry in gateway.behind
    )
    for route in gateway.routes:
        added = [header for header in _added(gateway, route.entry, route.host) if header[0] in _CREDENTIALS]
        if gateway.settings.strips_credential and not added and not by_filter:
            yield warning(
                route.entry["request_headers_to_add"],
                "the caller's key is stripped and none is added: the provider sees no credential",
                'header: {key: authorization, value: "Bearer %ENVIRONMENT(PROVIDER_KEY)%"}, '
                "append_action: OVERWRITE_IF_EXISTS_OR_ADD",
            )
        for name, node in added:
            action = node["append_action"].text()
            if not gateway.settings.strips_credential and action in ("", "APPEND_IF_EXISTS_OR_ADD"):
                yield warning(
                    node,
                    f"`credential: forward` keeps the caller's {name} and this appends a second one",
                    "append_action: OVERWRITE_IF_EXISTS_OR_ADD",
                )


def environment(gateway: Gateway) -> Iterator[Finding]:
    """Envoy writes `-` for a variable that it does not have."""
    for route in gateway.routes:
        for name, node in _added(gateway, route.entry, route.host):
            value = node.at("header", "value")
            for variable in _ENVIRONMENT.findall(value.text()):
                if not gateway.environ.get(variable):
                    sent = _ENVIRONMENT.sub("-", value.text())
                    yield warning(
                        value,
                        f"{variable} is not set in this environment; without it the provider gets `{name}: {sent}`",
                        f"{variable}=… in the environment that Envoy starts with",
                    )


def _added(gateway: Gateway, *levels: Node) -> list[tuple[str, Node]]:
    every = (*levels, gateway.manager["route_config"])
    headers = [header for level in every for header in level["request_headers_to_add"].items()]
    return [(header.at("header", "key").text().lower(), header) for header in headers]
