"""Envoy with the repository's own `envoy.yaml`: only ports, addresses and what a test asks for are changed."""

import http.client
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from . import holding, places
from .chat import CANARY
from .http1 import Response
from .ports import free_port
from .process import Process
from .wait import eventually

PROVIDER_KEY = "provider-key-of-the-tests"
SECRETS = re.compile(rf"sk-test-[\w-]+|{PROVIDER_KEY}|{CANARY}")
_TRAPS = re.compile(r"panicked|in-VM .* failed|Function: proxy_\w+ failed|Plugin configured to fail closed")


def _walk(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping of the document."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from _walk(value)


class Config:
    """The rendered document, with the places that tests change."""

    def __init__(self) -> None:
        self.document = yaml.safe_load((places.ROOT / "envoy.yaml").read_text())
        self.listener = self.document["static_resources"]["listeners"][0]
        plugins = [node["config"] for node in _walk(self.listener) if "vm_config" in node.get("config", {})]
        assert len(plugins) == 1, "envoy.yaml is expected to hold the filter once"
        self.plugin = plugins[0]

    def set_plugin(self, changes: dict[str, Any]) -> None:
        """Merges members into the plugin's configuration, one level of objects deep."""
        holder = self.plugin["configuration"]
        value = json.loads(holder["value"])
        for name, change in changes.items():
            value[name] = {**value.get(name, {}), **change} if isinstance(change, dict) else change
        holder["value"] = json.dumps(value)

    def quota_cluster(self) -> str:
        return str(json.loads(self.plugin["configuration"]["value"])["quota"]["cluster"])

    def set_endpoint(self, cluster: str, port: int) -> None:
        named = [c for c in self.document["static_resources"]["clusters"] if c["name"] == cluster]
        for node in _walk(named[0]["load_assignment"]):
            if "socket_address" in node:
                node["socket_address"] = {"address": "127.0.0.1", "port_value": port}

    def upstream_clusters(self) -> set[str]:
        routes = [node["route"] for node in _walk(self.listener) if isinstance(node.get("route"), dict)]
        return {route["cluster"] for route in routes if "cluster" in route}


class Envoy:
    def __init__(
        self,
        folder: Path,
        upstream_port: int,
        quota_port: int,
        plugin: dict[str, Any] | None = None,
        concurrency: int = 1,
        edit: Callable[[Config], None] = lambda config: None,
        options: tuple[str, ...] = (),
    ) -> None:
        self.port, self.admin_port = free_port(), free_port()
        config = Config()
        holding.as_this_run_does(config)
        self.quota_cluster = config.quota_cluster()
        config.set_plugin(plugin or {})
        edit(config)
        config.listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": self.port}
        admin = {"socket_address": {"address": "127.0.0.1", "port_value": self.admin_port}}
        config.document["admin"] = {**config.document.get("admin", {}), "address": admin}
        for cluster in config.upstream_clusters():
            config.set_endpoint(cluster, upstream_port)
        config.set_endpoint(self.quota_cluster, quota_port)
        self.upstream_cluster = min(config.upstream_clusters())
        self._concurrency = concurrency
        self._checked = 0
        self._faults: dict[str, int] = {}

        path = folder / f"envoy-{self.port}.yaml"
        path.write_text(yaml.safe_dump(config.document, sort_keys=False))
        command = [str(places.envoy()), "-c", str(path), "--concurrency", str(concurrency), "--disable-hot-restart"]
        command += ["--file-flush-interval-msec", "20", *options]
        env = {**os.environ, "PROVIDER_KEY": PROVIDER_KEY}
        # The file names the wasm relative to the repository, as a user runs it.
        self._process = Process([*command, "-l", "info"], path.with_suffix(".log"), env, places.ROOT)
        try:
            self._process.wait_until(self._ready)
        except BaseException:
            self._process.stop()
            raise

    def wait_for_models(self) -> None:
        """Every VM that ticks, the main thread's included, has been answered its request for the model list."""
        answered = f"cluster.{self.quota_cluster}.upstream_rq_completed"
        eventually(lambda: self.stats(f"^{answered}$").get(answered, 0), lambda n: n > self._concurrency, 20)

    def stop(self) -> None:
        self._process.stop()

    def check(self) -> None:
        """Since the last check no VM trapped, and neither a key nor a prompt came into the log."""
        whole = self._process.output()
        output, self._checked = whole[self._checked :], len(whole)
        traps = [line for line in output.splitlines() if _TRAPS.search(line)]
        assert not traps, "the filter trapped:\n" + "\n".join(traps[:20])
        leaks = [line for line in output.splitlines() if SECRETS.search(line)]
        assert not leaks, "the log shows a key or a prompt:\n" + "\n".join(leaks[:5])
        assert self._process.running(), f"Envoy ended:\n{output[-4000:]}"
        before, self._faults = self._faults, self.stats(r"^wasm\..*(crash|reload|fail)")
        new = {name: count for name, count in self._faults.items() if count > before.get(name, 0)}
        assert not new, f"VM faults: {new}"

    def output(self) -> str:
        return self._process.output()

    def access_log(self) -> list[dict[str, Any]]:
        """What was logged of each request, in the order in which they ended."""
        # Of whole lines: the last may be on its way.
        lines = [line for line in self.output().splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in lines if line.startswith('{"')]

    def logged(self, response: Response, passes: int = 1) -> list[dict[str, Any]]:
        """What was logged of this one: an entry for each pass through the filters."""
        own = response.header("x-request-id")
        return eventually(
            lambda: [entry for entry in self.access_log() if entry["request_id"] == own],
            lambda entries: len(entries) == passes,
        )

    def read_from_upstream(self) -> int:
        """Bytes read from the upstream so far, each read handed through the filters at once."""
        name = f"cluster.{self.upstream_cluster}.upstream_cx_rx_bytes_total"
        return self.stats(f"^{name}$").get(name, 0)

    def active_requests(self) -> int:
        """Requests of clients that are still there; the admin's own is not counted."""
        active = self.stats(r"^http\..*downstream_rq_active$")
        return sum(count for name, count in active.items() if not name.startswith("http.admin."))

    def stats(self, pattern: str) -> dict[str, int]:
        """Counters and gauges whose name matches."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        try:
            connection.request("GET", f"/stats?format=json&filter={pattern.replace('|', '%7C')}")
            found = json.loads(connection.getresponse().read())["stats"]
        finally:
            connection.close()
        return {stat["name"]: stat["value"] for stat in found if "value" in stat}

    def _ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=1)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
