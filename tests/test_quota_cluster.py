"""A quota cluster that leads nowhere: unknown to the proxy, without an endpoint, without a connection."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import chat, dead_ends, http1
from harness.envoy import Config, Envoy
from harness.policy import Tenant
from harness.refusals import assert_refused
from harness.stack import Gate
from harness.upstream import Upstream

CALLER = Tenant("any", "any")
DEADLINE_MS = 300
# What a busy machine may add.
SLACK_S = 1.0


def as_it_is(config: Config) -> None:
    pass


def without_endpoints(config: Config) -> None:
    quota(config)["load_assignment"]["endpoints"] = []


def without_healthy_ones(config: Config) -> None:
    """Found out by a check that nobody answers."""
    check = {"timeout": "0.1s", "interval": "3600s", "unhealthy_threshold": 1, "healthy_threshold": 1}
    never_all = {"healthy_panic_threshold": {"value": 0}}
    quota(config).update(health_checks=[{**check, "tcp_health_check": {}}], common_lb_config=never_all)


def full(config: Config) -> None:
    quota(config)["circuit_breakers"] = {"thresholds": [{"max_requests": 0, "max_pending_requests": 0}]}


def quota(config: Config) -> dict[str, Any]:
    clusters = config.document["static_resources"]["clusters"]
    [found] = [cluster for cluster in clusters if cluster["name"] == config.quota_cluster()]
    cluster: dict[str, Any] = found
    return cluster


Edit = Callable[[Config], None]
NOWHERE: dict[str, tuple[dict[str, Any], Edit]] = {
    "unknown cluster": ({"cluster": "no-such-cluster"}, as_it_is),
    "no endpoints": ({}, without_endpoints),
    "no healthy endpoint": ({}, without_healthy_ones),
    "circuit breaker": ({}, full),
    "packets dropped": ({}, as_it_is),
}


@contextmanager
def gate(folder: Path, case: str, mode: str) -> Iterator[Gate]:
    with ExitStack() as closing:
        upstream = Upstream(chat.answer())
        closing.callback(upstream.stop)
        port = closing.enter_context(dead_ends.dropped())
        changes, edit = NOWHERE[case]
        plugin = {"failure_mode": mode, "quota": {"timeout_ms": DEADLINE_MS, **changes}}
        envoy = Envoy(folder, upstream.port, port, plugin, edit=edit)
        closing.callback(envoy.stop)
        yield Gate(upstream, [envoy])


@pytest.mark.parametrize("case", NOWHERE)
def test_closed(tmp_path: Path, case: str) -> None:
    with gate(tmp_path, case, "closed") as stack:
        for stream in (False, True, False):
            start = time.monotonic()
            response = stack.post([CALLER.bearer], chat.body(stream=stream))
            assert time.monotonic() - start < DEADLINE_MS / 1000 + SLACK_S
            assert_refused(response, 503, "api_error", "quota_unavailable")
            assert response.header("retry-after") == "1"
        listed = http1.request(stack.envoy.port, "GET", "/v1/models", [CALLER.bearer])
        assert_refused(listed, 503, "api_error", "quota_unavailable")
        assert stack.upstream.requests == []
        stack.check()


@pytest.mark.parametrize("case", NOWHERE)
def test_open(tmp_path: Path, case: str) -> None:
    with gate(tmp_path, case, "open") as stack:
        for stream in (False, True, False):
            response = stack.post([CALLER.bearer], chat.body(stream=stream))
            assert (response.status, response.header("x-tokengate-degraded")) == (200, "open")
        assert len(stack.upstream.requests) == 3
        stack.check()
