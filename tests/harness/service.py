"""The real quota service, and what its admin port says about a tenant's buckets."""

import http.client
import json
import os
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import places
from .policy import Policy
from .ports import free_port
from .process import Process


@dataclass(frozen=True)
class Bucket:
    """What one tenant has been charged for one model, open holds included."""

    tokens: int
    requests: int
    open_holds: int = 0


class Service:
    def __init__(
        self, policy: Path, folder: Path, redis_url: str | None = None, options: Sequence[str] = ()
    ) -> None:
        self.port, self.admin_port, self.policy = free_port(), free_port(), policy
        store = ["--store", "redis", "--redis-url", redis_url] if redis_url else ["--store", "memory"]
        listen = ["--listen", f"127.0.0.1:{self.port}", "--admin-listen", f"127.0.0.1:{self.admin_port}"]
        command = [str(places.ratelimit()), "serve", "--policy", str(policy), *listen, *store, *options]
        self._process = Process(command, folder / "ratelimit.log", os.environ, folder)
        self._process.wait_until(self._ready)

    def explain(self, tenant: str, model: str, **asked: str) -> dict[str, Any]:
        query = urllib.parse.urlencode({"tenant": tenant, "model": model, **asked})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/v1/explain?{query}", timeout=10) as answer:
            explained: dict[str, Any] = json.load(answer)
            return explained

    def bucket(self, tenant: str, model: str = "gpt-4o") -> Bucket:
        seen = self.explain(tenant, model)
        used = {limit["name"]: limit["used"] for limit in seen["limits"]}
        return Bucket(used["model-tokens"], used["model-requests"], seen["open_holds"])

    def account_requests(self, tenant: str) -> int:
        """Requests of the tenant on any model or none."""
        used = {limit["name"]: limit["used"] for limit in self.explain(tenant, "gpt-4o")["limits"]}
        return int(used["account-requests"])

    def reload(self) -> None:
        """Has the policy file read again, without waiting for the service to look by itself."""
        self._process.signal(signal.SIGHUP)

    def policy_version(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=10) as answer:
            return str(json.load(answer)["policy_version"])

    def store_calls(self, call: str) -> int:
        """Calls of this kind that the store has answered."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        counts = [line for line in lines if line.startswith("tokengate_ratelimit_store_call_seconds_count")]
        return sum(int(line.rsplit(" ", 1)[1]) for line in counts if f'call="{call}"' in line)

    def readiness(self) -> tuple[int, str]:
        """What a probe gets: the status, and the reason when it is not ready."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            body = json.load(answer)
        finally:
            connection.close()
        return answer.status, "" if answer.status == 200 else str(body["error"]["message"])

    def output(self) -> str:
        return self._process.output()

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        """Ends it before it can do anything about that."""
        self._process.signal(signal.SIGKILL)
        self._process.stop()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def quota_service(
    policy: Policy, folder: Path, redis_url: str | None = None, options: Sequence[str] = ()
) -> Iterator[Service]:
    service = Service(policy.write(folder / "policy.yaml"), folder, redis_url, options)
    try:
        yield service
    finally:
        service.stop()
