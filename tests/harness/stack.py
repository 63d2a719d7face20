"""Everything a test talks to, wired together and started: client → Envoy → upstream, Envoy → quota service."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

from . import chat, http1
from .envoy import SECRETS, Config, Envoy
from .http1 import Headers, Response
from .policy import MODELS, Plan, Policy, Tenant
from .proxy import Proxy
from .quota import FakeQuota
from .redis import Redis
from .service import Bucket, Service, quota_service
from .upstream import Upstream
from .wait import becomes, eventually

# The shipped 100 ms are for a machine that is not busy running other tests; those who test the deadline set it.
PATIENT_QUOTA = {"timeout_ms": 5000}


@dataclass
class Gate:
    """An Envoy in front of an upstream: what is common to every stack."""

    upstream: Upstream
    envoys: list[Envoy]

    @property
    def envoy(self) -> Envoy:
        return self.envoys[0]

    def post(self, key: Headers, body: dict[str, Any] | bytes, path: str = chat.PATH) -> Response:
        data = body if isinstance(body, bytes) else chat.encode(body)
        return http1.request(self.envoy.port, "POST", path, [*key, ("content-type", "application/json")], data)

    def open(self, tenant: Tenant, body: dict[str, Any] | bytes, *headers: tuple[str, str]) -> http1.Connection:
        """Sends a request and leaves its answer to the caller, who closes the connection."""
        data = body if isinstance(body, bytes) else chat.encode(body)
        connection = http1.Connection(self.envoy.port)
        connection.send(http1.encode("POST", chat.PATH, [tenant.bearer, *headers], data))
        return connection

    def check(self) -> None:
        faults = self.upstream.take_faults()
        assert not faults, f"an upstream script failed: {faults}"
        for envoy in self.envoys:
            envoy.check()


@dataclass
class Stack(Gate):
    """With the real quota service behind a proxy that can take it away."""

    policy: Policy
    service: Service
    proxy: Proxy
    redis: Redis | None

    def check(self) -> None:
        super().check()
        leaks = SECRETS.findall(self.service.output())
        assert not leaks, f"the service's log shows a key: {leaks[:3]}"

    def change_policy(self, edit: Callable[[dict[str, Any]], None]) -> None:
        """Writes the policy file with this change and returns when the service follows it."""
        before = self.service.policy_version()
        self.policy.edit = edit
        self.policy.write(self.service.policy)
        self.service.reload()
        eventually(self.service.policy_version, lambda version: version != before, 20)

    def tenant(self, plan: str = "roomy") -> Tenant:
        return self.policy.fresh_tenant(plan)

    def ask(self, tenant: Tenant, **members: Any) -> Response:
        """A small chat request; `members` change its body."""
        return self.post([tenant.bearer], chat.body(**members))

    def openai(self, tenant: Tenant, envoy: Envoy | None = None, **options: Any) -> OpenAI:
        port = (envoy or self.envoy).port
        return OpenAI(api_key=tenant.key, base_url=f"http://127.0.0.1:{port}/v1", **{"max_retries": 0, **options})

    def settles_to(
        self, tenant: Tenant, tokens: int, requests: int, model: str = "gpt-4o", timeout: float = 5.0
    ) -> None:
        """The bucket comes to exactly this, with no hold left open."""
        becomes(lambda: self.service.bucket(tenant.name, model), Bucket(tokens, requests, 0), timeout)

    def closed_bucket(self, tenant: Tenant, model: str = "gpt-4o") -> Bucket:
        """The bucket as soon as nothing is held any more."""
        return eventually(lambda: self.service.bucket(tenant.name, model), lambda bucket: bucket.open_holds == 0)

    def holds(self, tenant: Tenant, tokens: int, model: str = "gpt-4o") -> None:
        """One request is in flight, and holds exactly this."""
        becomes(lambda: self.service.bucket(tenant.name, model), Bucket(tokens, 1, 1))

    @contextmanager
    def in_flight(self, tenant: Tenant, **members: Any) -> Iterator[None]:
        """While the block runs, the upstream has the request and does not answer it; afterwards it does."""
        gate = self.upstream.gate()
        self.upstream.handler = chat.answer(gate=gate)
        connection = http1.Connection(self.envoy.port)
        try:
            connection.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body(**members))))
            gate.reached(1)
            yield
            gate.open()
            assert connection.response().status == 200
        finally:
            gate.open()
            connection.close()


@contextmanager
def running(
    folder: Path,
    plugin: dict[str, Any] | None = None,
    plans: dict[str, Plan] | None = None,
    redis: bool = False,
    envoys: int = 1,
    concurrency: int = 1,
    edit: Callable[[Config], None] = lambda config: None,
    checked: bool = True,
    policy: Policy | None = None,
    service_options: Sequence[str] = (),
    redis_url: Callable[[Redis], str] = lambda store: store.url,
) -> Iterator[Stack]:
    """A stack with the real quota service. Leaving it checks every Envoy, unless its filter is meant to fail.
    `redis_url` is where the service finds Redis, when that is not where it is."""
    with ExitStack() as closing:
        upstream = Upstream(chat.answer())
        closing.callback(upstream.stop)
        policy = policy or (Policy(plans) if plans else Policy())
        store = Redis(folder) if redis else None
        if store:
            closing.callback(store.stop)
        service = closing.enter_context(quota_service(policy, folder, redis_url(store) if store else None, service_options))
        proxy = Proxy(service.port)
        closing.callback(proxy.stop)
        started = []
        for _ in range(envoys):
            config = {"quota": PATIENT_QUOTA, **(plugin or {})}
            started.append(Envoy(folder, upstream.port, proxy.port, config, concurrency, edit))
            closing.callback(started[-1].stop)
            started[-1].wait_for_models()
        stack = Stack(upstream, started, policy, service, proxy, store)
        yield stack
        if checked:
            stack.check()


@dataclass
class FakeStack(Gate):
    """With a quota service that a test scripts."""

    quota: FakeQuota


@contextmanager
def running_fake(
    folder: Path,
    plugin: dict[str, Any] | None = None,
    edit: Callable[[Config], None] = lambda config: None,
    **listed: Any,
) -> Iterator[FakeStack]:
    """`listed` are further members of the model list."""
    with ExitStack() as closing:
        upstream = Upstream(chat.answer())
        closing.callback(upstream.stop)
        quota = FakeQuota(MODELS, listed=listed)
        closing.callback(quota.stop)
        envoy = Envoy(folder, upstream.port, quota.port, {"quota": PATIENT_QUOTA, **(plugin or {})}, edit=edit)
        closing.callback(envoy.stop)
        envoy.wait_for_models()
        stack = FakeStack(upstream, [envoy], quota)
        yield stack
        stack.check()
