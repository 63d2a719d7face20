"""Which routes can carry a request that is metered."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .node import Node

# The paths that the filter knows a dialect for, as the client writes them.
METERED_PATHS = ("/v1/chat/completions",)


@dataclass(frozen=True)
class Route:
    entry: Node
    host: Node
    config: Node
    """The route configuration that holds the virtual host."""

    @property
    def action(self) -> Node:
        return self.entry["route"]

    def policy(self, name: str) -> Node:
        """What the route says, else its virtual host, else the whole route configuration."""
        return self.action[name] or self.host[name] or self.config[name]

    def clusters(self) -> list[str]:
        weighted = self.action.at("weighted_clusters", "clusters").items()
        return [node.text() for node in [self.action["cluster"]] + [one["name"] for one in weighted] if node]


def metered_routes(config: Node, filter_name: str) -> list[Route]:
    """The routes to a cluster that a metered path can take and that do not switch the filter off."""
    routes = [
        Route(entry, host, config)
        for host in config["virtual_hosts"].items()
        for entry in host["routes"].items()
    ]
    return [
        route
        for route in routes
        if route.action and _can_match(route.entry["match"]) and not _is_off(route, filter_name)
    ]


def _can_match(match: Node) -> bool:
    return _can_post(match) and any(_matches(match, path) for path in METERED_PATHS)


def _can_post(match: Node) -> bool:
    for header in match["headers"].items():
        exact = header.at("string_match", "exact") or header["exact_match"]
        if header["name"].text() == ":method" and exact and exact.value != "POST":
            return False
    return True


def _matches(match: Node, path: str) -> bool:
    if match["connect_matcher"]:
        return False
    ignore_case = match["case_sensitive"].value is False
    fold = str.lower if ignore_case else str
    if match["path"]:
        return fold(match["path"].text()) == fold(path)
    if match["path_separated_prefix"]:
        return fold(path + "/").startswith(fold(match["path_separated_prefix"].text()) + "/")
    if match["safe_regex"]:
        try:
            return re.fullmatch(match.at("safe_regex", "regex").text(), path) is not None
        except re.error:
            return True  # RE2's own syntax; better one finding too many
    return fold(path).startswith(fold(match["prefix"].text()))


def _is_off(route: Route, filter_name: str) -> bool:
    """The most specific `typed_per_filter_config` decides."""
    for level in (route.entry, route.host, route.config):
        own = level["typed_per_filter_config"][filter_name]
        if own:
            return own["disabled"].is_true()
    return False
