"""The HTTP connection manager: paths, addresses, time limits, access log, Envoy's own replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .finding import Finding, error, warning
from .node import Node
from .parts import Gateway
from .settings import DEFAULT_HEADERS

_SAFE_SLASHES = ("UNESCAPE_AND_FORWARD", "UNESCAPE_AND_REDIRECT", "REJECT_REQUEST")
# The statuses that the filter refuses with.
_OUR_STATUSES = (400, 401, 403, 404, 413, 415, 429, 503)
_LOGGED = re.compile(r"%REQ(?:_WITHOUT_QUERY)?\(([^)]*)\)|request\.headers\[\s*['\"]([^'\"]+)['\"]\s*\]")
_ALWAYS_SECRET = (*DEFAULT_HEADERS, "x-goog-api-key", "proxy-authorization")


def normalize_path(gateway: Gateway) -> Iterator[Finding]:
    what = "a path with `..` reaches the provider as another one than the filter sees"
    yield from _must_be_true(gateway, "normalize_path", error, what)


def merge_slashes(gateway: Gateway) -> Iterator[Finding]:
    what = "a path with `//` is another one to the filter than to many providers"
    yield from _must_be_true(gateway, "merge_slashes", error, what)


def remote_address(gateway: Gateway) -> Iterator[Finding]:
    what = "what a client writes in x-forwarded-for is believed"
    instead = ", and xff_num_trusted_hops for the proxies in front"
    yield from _must_be_true(gateway, "use_remote_address", warning, what, instead)


def request_id(gateway: Gateway) -> Iterator[Finding]:
    what = "callers get no x-request-id to ask about"
    yield from _must_be_true(gateway, "always_set_request_id_in_response", warning, what)


def _must_be_true(
    gateway: Gateway, name: str, severity: Callable[[Node, str, str], Finding], what: str, more: str = ""
) -> Iterator[Finding]:
    node = gateway.manager[name]
    if gateway.manager and not node.is_true():
        yield severity(node, what, f"{name}: true{more}")


def escaped_slashes(gateway: Gateway) -> Iterator[Finding]:
    node = gateway.manager["path_with_escaped_slashes_action"]
    if gateway.manager and node.text() not in _SAFE_SLASHES:
        yield error(
            node,
            "a path with %2F is another one to the filter than to many providers",
            "path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD",
        )


def continue_100(gateway: Gateway) -> Iterator[Finding]:
    node = gateway.manager["proxy_100_continue"]
    if node.is_true():
        yield error(
            node,
            "nobody answers `Expect: 100-continue` while the headers are held; clients wait their full time",
            "proxy_100_continue: false",
        )


def ignored_upgrades(gateway: Gateway) -> Iterator[Finding]:
    """The value that Apache's HttpClient offers must match one of them."""
    node = gateway.manager["http_protocol_options"]["ignore_http_11_upgrade"]
    if not gateway.manager or gateway.manager["codec_type"].text() == "HTTP2":
        return
    if not any(_matches(matcher, "TLS/1.2") for matcher in node.items()):
        yield warning(
            node,
            "clients that offer `Upgrade: TLS/1.2` on plain HTTP, as Apache's HttpClient 5.4 does by default, get 403",
            'ignore_http_11_upgrade: [{prefix: "TLS/", ignore_case: true}] in http_protocol_options',
        )


def _matches(matcher: Node, value: str) -> bool:
    if matcher["safe_regex"]:
        try:
            return re.fullmatch(matcher.at("safe_regex", "regex").text(), value) is not None
        except re.error:
            return True  # RE2's own syntax; give it the benefit of the doubt
    fold = str.lower if matcher["ignore_case"].is_true() else str
    value = fold(value)
    exact, prefix, suffix, contains = (fold(matcher[n].text()) for n in ("exact", "prefix", "suffix", "contains"))
    return bool(
        (exact and value == exact)
        or (prefix and value.startswith(prefix))
        or (suffix and value.endswith(suffix))
        or (contains and contains in value)
    )


def stream_idle_timeout(gateway: Gateway) -> Iterator[Finding]:
    node = gateway.manager["stream_idle_timeout"]
    if not gateway.manager:
        return
    if not node:
        yield warning(
            node,
            "only this ends the requests that a stopped filter held, and the default (5 min) is short for routes",
            "stream_idle_timeout: 660s",
        )
    elif node.seconds() == 0:
        yield error(node, "requests that a stopped filter held hang for ever", "stream_idle_timeout: 660s")


def request_timeout(gateway: Gateway) -> Iterator[Finding]:
    node = gateway.manager["request_timeout"]
    if gateway.manager and (not node or node.seconds() == 0):
        yield warning(
            node,
            "a client may take for ever to send a request, which is kept in memory until it is whole",
            "request_timeout: 120s",
        )


def access_log(gateway: Gateway) -> Iterator[Finding]:
    if not gateway.manager:
        return
    if not gateway.manager["access_log"].items():
        yield warning(
            gateway.manager["access_log"],
            "there is no access log: nothing says who refused a request",
            "an access_log with %RESPONSE_CODE_DETAILS%, as in tokengate's envoy.yaml",
        )


def logged_credentials(gateway: Gateway) -> Iterator[Finding]:
    """The provider's key too: routes write it over the caller's."""
    secret = {*_ALWAYS_SECRET, *gateway.settings.identity_headers}
    for log in (gateway.manager["access_log"], gateway.listener["access_log"]):
        for node in log.texts():
            names = {name.lower() for found in _LOGGED.findall(node.value) for name in _header_names(found)}
            if "additional_request_headers_to_log[" in node.path:
                names.add(node.value.lower())
            for name in sorted(names & secret):
                yield error(node, f"the access log holds keys: it writes the header {name}", f"no {name} here")


def _header_names(found: tuple[str, str]) -> list[str]:
    operator, expression = found
    return operator.split("?") if operator else [expression]


def local_replies(gateway: Gateway) -> Iterator[Finding]:
    replies = gateway.manager["local_reply_config"]
    if gateway.manager and not replies:
        yield warning(
            replies,
            "Envoy's own 408, 413, 503 and 504 are plain text, which the clients' SDKs cannot read",
            "a local_reply_config as in tokengate's envoy.yaml",
        )


def rewritten_refusals(gateway: Gateway) -> Iterator[Finding]:
    replies = gateway.manager["local_reply_config"]
    if replies["body_format"]:
        yield warning(
            replies["body_format"],
            "it rewrites tokengate's refusals too: callers no longer see the limit and when it recovers",
            "mappers that exclude tokengate's replies, with body_format_override",
        )
    for mapper in replies["mappers"].items():
        changes = mapper["body_format_override"] or mapper["body"] or mapper["status_code"]
        if changes and not _spares_ours(mapper["filter"]):
            yield warning(
                mapper["filter"],
                "it rewrites tokengate's refusals too: callers no longer see the limit and when it recovers",
                "a CEL filter with `&& !response.code_details.startsWith('tokengate_')`",
            )


def _spares_ours(condition: Node) -> bool:
    """Whether a reply of ours can never meet it, as far as one can tell without running it."""
    alternatives = condition.at("or_filter", "filters").items()
    if alternatives:
        return all(_spares_ours(one) for one in alternatives)
    if any(_spares_ours(one) for one in condition.at("and_filter", "filters").items()):
        return True
    if condition.at("response_flag_filter", "flags").items():
        return True  # ours carry no flag
    comparison = condition.at("status_code_filter", "comparison")
    if comparison and comparison["op"].value in (None, "EQ", 0):
        return comparison.at("value", "default_value").number() not in _OUR_STATUSES
    return any("tokengate_" in node.value for node in condition["extension_filter"].texts())
