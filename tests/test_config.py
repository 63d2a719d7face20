"""Configurations that Envoy must not start with, and the one that ships."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness import places
from harness.envoy import Config, Envoy
from harness.process import StartFailed
from harness.stack import Stack

# Nobody listens there, and nobody is asked.
NOBODY = 1


def refusal(folder: Path, **changes: Any) -> str:
    """What Envoy says as it ends. One that starts all the same is stopped, and is a failure."""
    with pytest.raises(StartFailed) as caught:
        Envoy(folder, NOBODY, NOBODY, **changes).stop()
    return str(caught.value)


@pytest.mark.parametrize(
    ("plugin", "named"),
    [
        ({"hold_at": "nothing"}, "hold_at"),
        ({"mode": "watch"}, "mode"),
        ({"failure_mode": "maybe"}, "failure_mode"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"outbox": {"tik_ms": 50}}, "outbox.tik_ms"),
        ({"quota": {"timeout_ms": 0}}, "quota.timeout_ms"),
        ({"quota": {"timeout_ms": "100"}}, "quota.timeout_ms"),
        ({"quota": {"timeout_ms": 2**33}}, "quota.timeout_ms"),
        ({"quota": {"timeout_ms": -1}}, "quota.timeout_ms"),
        ({"quota": {"cluster": ""}}, "quota.cluster"),
        ({"quota": {"authority": ""}}, "quota.authority"),
        ({"outbox": {"tick_ms": 0}}, "outbox.tick_ms"),
        ({"outbox": {"tick_ms": 2**33}}, "outbox.tick_ms"),
        ({"paths": {"other": "allow"}}, "paths.other"),
        ({"max_body_bytes": -1}, "max_body_bytes"),
    ],
    ids=repr,
)
def test_a_bad_value_is_refused_with_its_path(tmp_path: Path, plugin: dict[str, Any], named: str) -> None:
    assert named in refusal(tmp_path, plugin=plugin)


def as_struct(config: Config) -> None:
    config.plugin["configuration"] = {
        "@type": "type.googleapis.com/google.protobuf.Struct",
        "value": {"failure_mode": "closed"},
    }


def as_broken_json(config: Config) -> None:
    config.plugin["configuration"]["value"] = '{"failure_mode":'


@pytest.mark.parametrize(("edit", "named"), [(as_struct, "StringValue"), (as_broken_json, "EOF while parsing")])
def test_a_configuration_of_another_form_is_refused(tmp_path: Path, edit: Any, named: str) -> None:
    assert named in refusal(tmp_path, edit=edit)


def test_the_shipped_configuration_is_valid_as_it_is() -> None:
    command = [str(places.envoy()), "--mode", "validate", "-c", "envoy.yaml"]
    env = {**os.environ, "PROVIDER_KEY": "any"}
    done = subprocess.run(command, cwd=places.ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_filter_says_what_it_is_when_a_vm_starts(stack: Stack) -> None:
    version = next(
        line.split('"')[1]
        for line in (places.ROOT / "Cargo.toml").read_text().splitlines()
        if line.startswith("version = ")
    )
    assert f"tokengate {version}" in stack.envoy.output()
