"""Changes to the shipped `envoy.yaml` that several files' tests ask for: routes, filters, clusters."""

import copy
from collections.abc import Callable
from typing import Any

from .envoy import Config

# A request picks its route by this header; without it, it takes the shipped one.
ROUTE = "x-route"
_TYPES = "type.googleapis.com/envoy.extensions.filters.http"

Edit = Callable[[Config], None]


def connection_manager(config: Config) -> dict[str, Any]:
    manager: dict[str, Any] = config.listener["filter_chains"][0]["filters"][0]["typed_config"]
    return manager


def filters(config: Config) -> list[dict[str, Any]]:
    """Ours, then the router."""
    found: list[dict[str, Any]] = connection_manager(config)["http_filters"]
    return found


def add_routes(config: Config, actions: dict[str, dict[str, Any]]) -> None:
    """A route per name. An action without a kind of its own goes to the provider like the shipped route."""
    routes = connection_manager(config)["route_config"]["virtual_hosts"][0]["routes"]
    [shipped] = routes
    for name, action in actions.items():
        route = copy.deepcopy(shipped)
        if action.keys() & {"direct_response", "redirect"}:
            del route["route"]
            route.update(action)
        else:
            route["route"].update(action)
            if "cluster_header" in action:
                del route["route"]["cluster"]
        route["match"]["headers"] = [{"name": ROUTE, "string_match": {"exact": name}}]
        routes.insert(0, route)
    shipped["match"]["headers"] = [{"name": ROUTE, "present_match": False}]


def add_cluster(config: Config, name: str, **members: Any) -> None:
    """Like the provider's, but for `members`."""
    clusters = config.document["static_resources"]["clusters"]
    [provider] = [cluster for cluster in clusters if cluster["name"] == "provider"]
    cluster = copy.deepcopy(provider)
    cluster["name"] = cluster["load_assignment"]["cluster_name"] = name
    cluster.update(members)
    clusters.append(cluster)


def lua(name: str, code: str) -> dict[str, Any]:
    typed = {"@type": f"{_TYPES}.lua.v3.Lua", "default_source_code": {"inline_string": code}}
    return {"name": name, "typed_config": typed}


def fault() -> dict[str, Any]:
    """Delays and aborts on the request's own demand."""
    delay = {"header_delay": {}, "percentage": {"numerator": 100}}
    abort = {"header_abort": {}, "percentage": {"numerator": 100}}
    return {
        "name": "envoy.filters.http.fault",
        "typed_config": {"@type": f"{_TYPES}.fault.v3.HTTPFault", "delay": delay, "abort": abort},
    }


def buffer(limit: int) -> dict[str, Any]:
    typed = {"@type": f"{_TYPES}.buffer.v3.Buffer", "max_request_bytes": limit}
    return {"name": "envoy.filters.http.buffer", "typed_config": typed}
