"""A listener that is replaced while Envoy runs: what the old configuration had to settle is still settled."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import chat, http1
from harness.envoy import Config, Envoy
from harness.oracle import oracle
from harness.policy import Tenant
from harness.stack import PATIENT_QUOTA, Stack
from harness.wait import becomes, eventually

LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"


class Reloading:
    """An Envoy that reads its listener from a file."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        # Envoy itself cries when a configuration is refused.
        self.is_checked = True
        self._file = folder / "listeners.json"
        self._write([])
        # Old filter chains are closed one second after the new ones have come.
        options = ("--drain-time-s", "1", "--drain-strategy", "immediate")
        self.envoy = Envoy(
            folder, stack.upstream.port, stack.proxy.port, {"quota": PATIENT_QUOTA}, edit=self._edit, options=options
        )

    def change(self, **plugin: Any) -> None:
        """Replaces the listener by one whose filter has these settings."""
        self._put("(listener_create_success|listener_in_place_updated)", plugin)

    def change_in_vain(self, **plugin: Any) -> None:
        """The same with settings that are refused."""
        self._put("lds.update_rejected", plugin)
        self.is_checked = False

    def old_ones_are_gone(self) -> None:
        becomes(lambda: self._count("total_filter_chains_draining"), 0, 20)

    def _put(self, counted_by: str, plugin: dict[str, Any]) -> None:
        before = self._count(counted_by)
        self._config.set_plugin(plugin)
        self._write([{"@type": LISTENER, **self._config.listener}])
        eventually(lambda: self._count(counted_by), lambda count: count > before, 20)

    def _count(self, name: str) -> int:
        return sum(self.envoy.stats(rf"^listener_manager\.{name}$").values())

    def _edit(self, config: Config) -> None:
        self._config = config
        config.document["static_resources"]["listeners"] = []
        source = {"path_config_source": {"path": str(self._file)}}
        config.document["dynamic_resources"] = {"lds_config": {**source, "resource_api_version": "V3"}}
        config.document["node"] = {"id": "tests", "cluster": "tests"}

    def _write(self, resources: list[Any]) -> None:
        """Envoy watches for a file that is moved here."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({"resources": resources}))
        new.rename(self._file)


@pytest.fixture
def reloading(stack: Stack, tmp_path: Path) -> Iterator[Reloading]:
    reloading = Reloading(tmp_path, stack)
    try:
        reloading.change()
        reloading.envoy.wait_for_models()
        yield reloading
        if reloading.is_checked:
            reloading.envoy.check()
    finally:
        reloading.envoy.stop()


def send(envoy: Envoy, tenant: Tenant) -> http1.Connection:
    client = http1.Connection(envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(chat.body())))
    return client


def hold() -> int:
    return oracle().prompt(chat.body()["messages"]) + int(chat.body()["max_tokens"])


def test_a_request_of_the_old_configuration_is_served_and_settled(
    stack: Stack, tenant: Tenant, reloading: Reloading
) -> None:
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    client = send(reloading.envoy, tenant)
    gate.reached(1)
    stack.holds(tenant, hold())
    reloading.change(max_body_bytes=4096)
    gate.open()
    assert client.response().status == 200
    client.close()
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_what_the_old_configuration_had_queued_is_sent_after_it_is_gone(
    stack: Stack, tenant: Tenant, reloading: Reloading
) -> None:
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    client = send(reloading.envoy, tenant)
    gate.reached(1)
    stack.holds(tenant, hold())
    stack.proxy.refuse()
    try:
        gate.open()
        assert client.response().status == 200
        client.close()
        becomes(reloading.envoy.active_requests, 0)
        reloading.change(max_body_bytes=4096)
        reloading.old_ones_are_gone()
        stack.holds(tenant, hold())
    finally:
        stack.proxy.accept()
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1, timeout=10)
    # Nor does it stay in the gauge that all configurations share.
    becomes(lambda: reloading.envoy.stats("^wasmcustom.tokengate_outbox_items$").popitem()[1], 0)


def test_what_the_old_configuration_has_begun_to_count_is_counted(
    stack: Stack, tenant: Tenant, reloading: Reloading
) -> None:
    """By its ticks, which must not end before."""
    body = chat.body(messages=[{"role": "user", "content": "a" * 1_500_000}])
    stack.upstream.handler = chat.raw_json(chat.completion("x", chat.Usage(3, 4)))
    client = http1.Connection(reloading.envoy.port)
    client.send(http1.encode("POST", chat.PATH, [tenant.bearer], chat.encode(body)))
    reloading.change(max_body_bytes=4096)
    assert client.response().status == 200
    client.close()
    stack.settles_to(tenant, 7, requests=1)


def test_the_new_configuration_holds_at_once(stack: Stack, tenant: Tenant, reloading: Reloading) -> None:
    large = chat.encode(chat.body(padding="x" * 4096))
    assert http1.request(reloading.envoy.port, "POST", chat.PATH, [tenant.bearer], large).status == 200
    reloading.change(max_body_bytes=4096)
    assert http1.request(reloading.envoy.port, "POST", chat.PATH, [tenant.bearer], large).status == 413
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_a_configuration_that_is_refused_changes_nothing(stack: Stack, tenant: Tenant, reloading: Reloading) -> None:
    reloading.change_in_vain(unheard_of=1)
    assert "unheard_of" in reloading.envoy.output()
    response = http1.request(reloading.envoy.port, "POST", chat.PATH, [tenant.bearer], chat.encode(chat.body()))
    assert response.status == 200
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)
