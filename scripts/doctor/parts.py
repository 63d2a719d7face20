"""Finds tokengate's filter in a file, and what surrounds it: connection manager, listener, routes, clusters.

A bootstrap with static resources has all of it. A file may also hold only a part (a listener, a connection
manager, an xDS `resources` list, an Istio EnvoyFilter): what is not in the file is absent here, and not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Optional

from .node import Node
from .routes import Route, metered_routes
from .settings import Settings

ABSENT = Node(None)
ROUTER = "http.router.v3.Router"


@dataclass(frozen=True)
class Gateway:
    """One connection manager, or patch, that holds the filter."""

    entry: Node
    """The filter's own element of `http_filters`."""
    environ: Mapping[str, str]
    filters: tuple[Node, ...] = ()
    manager: Node = ABSENT
    listener: Node = ABSENT
    bootstrap: Node = ABSENT
    clusters: Mapping[str, Node] = field(default_factory=dict)
    knows_clusters: bool = False
    """Whether a cluster that is not in `clusters` does not exist."""
    patch: Node = ABSENT

    @property
    def plugin(self) -> Node:
        return self.entry["typed_config"].message()["config"]

    @property
    def settings(self) -> Settings:
        return Settings.of(self.plugin["configuration"])

    @property
    def routes(self) -> list[Route]:
        return metered_routes(self.manager["route_config"], self.entry["name"].text())

    @property
    def behind(self) -> tuple[Node, ...]:
        """The filters between ours and the upstream."""
        places = [place.path for place in self.filters]
        if self.entry.path not in places:
            return ()
        return self.filters[places.index(self.entry.path) + 1 :]

    def quota_cluster(self) -> Node:
        return self.clusters.get(self.settings.quota_cluster, ABSENT)

    def unseen(self) -> list[str]:
        """What another file holds."""
        parts = []
        if not self.plugin:
            parts.append("the filter's configuration")
        if not self.manager:
            parts.append("the connection manager")
        if self.patch or not self.listener:
            parts.append("the listener's buffer limit")
        if not self.manager["route_config"]:
            parts.append("routes")
        if not self.quota_cluster() and not self.knows_clusters:
            parts.append(f"the cluster {self.settings.quota_cluster}")
        if not self.bootstrap:
            parts += ["stats_config", "the overload manager", "the runtime"]
        return parts


def has_type(entry: Node, message: str) -> bool:
    return entry["typed_config"].is_type(message)


def gateways(documents: list[Node], environ: Mapping[str, str]) -> list[Gateway]:
    return list(_collect(documents).gateways(environ))


@dataclass
class _Parts:
    listeners: list[Node] = field(default_factory=list)
    managers: list[Node] = field(default_factory=list)
    patches: list[Node] = field(default_factory=list)
    clusters: dict[str, Node] = field(default_factory=dict)
    bootstrap: Node = ABSENT

    def gateways(self, environ: Mapping[str, str]) -> Iterator[Gateway]:
        held = [(listener, manager) for listener in self.listeners for manager in _managers(listener)]
        held += [(ABSENT, manager) for manager in self.managers]
        knows_clusters = bool(self.bootstrap) and not self.bootstrap["dynamic_resources"]["cds_config"]
        for listener, manager in held:
            filters = tuple(manager["http_filters"].items())
            for entry in filters:
                if _is_ours(entry):
                    yield Gateway(
                        entry, environ, filters, manager, listener, self.bootstrap, self.clusters, knows_clusters
                    )
        yield from self._patched(environ)

    def _patched(self, environ: Mapping[str, str]) -> Iterator[Gateway]:
        """An EnvoyFilter gives the filter whole, or its place and its configuration apart."""
        placed = [patch for patch in self.patches if patch["apply_to"].text() == "HTTP_FILTER"]
        apart = [patch for patch in self.patches if patch["apply_to"].text() == "EXTENSION_CONFIG"]
        places = {patch.at("patch", "value", "name").text(): patch for patch in placed}
        added = tuple(patch.at("patch", "value") for patch in placed)
        for patch in apart + placed:
            entry = patch.at("patch", "value")
            if _is_ours(entry) and entry["typed_config"]:
                place = places.get(entry["name"].text(), patch)
                yield Gateway(entry, environ, added, clusters=self.clusters, patch=place)


def _collect(documents: list[Node]) -> _Parts:
    """All documents of a file belong together."""
    parts = _Parts()
    for document in documents:
        static = document["static_resources"]
        if document["kind"].text() == "EnvoyFilter":
            for patch in document.at("spec", "config_patches").items():
                parts.patches.append(patch)
                if patch["apply_to"].text() == "CLUSTER":
                    _add_clusters(parts, [patch.at("patch", "value")])
        elif static or document["dynamic_resources"] or document["admin"]:
            parts.bootstrap = document
            parts.listeners += static["listeners"].items()
            _add_clusters(parts, static["clusters"].items())
        elif document["resources"]:
            resources = document["resources"].items()
            parts.listeners += [one for one in resources if one.is_type("Listener")]
            _add_clusters(parts, [one for one in resources if one.is_type("Cluster")])
        elif document["http_filters"]:
            parts.managers.append(document)
        else:
            parts.listeners.append(document)
    return parts


def _add_clusters(parts: _Parts, clusters: list[Node]) -> None:
    parts.clusters.update({cluster["name"].text(): cluster for cluster in clusters})


def _managers(listener: Node) -> Iterator[Node]:
    for chain in listener["filter_chains"].items() + [listener["default_filter_chain"]]:
        for entry in chain["filters"].items():
            if has_type(entry, "HttpConnectionManager"):
                yield entry["typed_config"].message()


def _is_ours(entry: Node) -> bool:
    """By any of its names: what is called tokengate is tokengate."""
    config = entry["typed_config"].message()["config"]
    if entry["typed_config"] and not has_type(entry, "http.wasm.v3.Wasm"):
        return False
    code = config.at("vm_config", "code")
    names = [entry["name"], config["name"], config["root_id"], code.at("local", "filename")]
    names.append(code.at("remote", "http_uri", "uri"))
    return any("tokengate" in name.text() for name in names)


def router_index(filters: tuple[Node, ...]) -> Optional[int]:
    return next((index for index, entry in enumerate(filters) if has_type(entry, ROUTER)), None)
