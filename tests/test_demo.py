"""`make demo` as a newcomer meets it, and every command that the README shows."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import places
from harness.ports import free_port
from harness.wait import eventually

DEMO = [str(places.ROOT / ".venv/bin/python"), str(places.ROOT / "scripts/demo"), "debug"]


@dataclass
class Demo:
    process: subprocess.Popen[str]
    ports: dict[str, int]
    curls: list[str]


def settings(**changes: str) -> dict[str, str]:
    # The service's admin port is the next one, so that is taken too.
    quota = free_port()
    free_port()
    ports = {"PORT": free_port(), "ADMIN_PORT": free_port(), "QUOTA_PORT": quota}
    fixed = {name: str(port) for name, port in ports.items()}
    return {**os.environ, **fixed, "ENVOY": str(places.envoy()), **changes}


@pytest.fixture(scope="module", params=["memory", "redis"])
def demo(request: pytest.FixtureRequest) -> Iterator[Demo]:
    env = settings(STORE=request.param)
    process = subprocess.Popen(DEMO, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    ready = process.stdout.readline()
    assert ready.startswith("ready"), ready + process.stdout.read()
    curls = [process.stdout.readline().strip() for _ in range(2)]
    yield Demo(process, {name: int(env[name]) for name in ("PORT", "ADMIN_PORT", "QUOTA_PORT")}, curls)
    if process.poll() is None:
        process.terminate()
        process.wait(20)


def shell(command: str) -> str:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True).stdout


def statuses(output: str) -> list[str]:
    return re.findall(r"HTTP/1\.1 (\d+) ", output)


def readme_blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (places.ROOT / "README.md").read_text(), re.DOTALL)


def test_the_two_printed_commands(demo: Demo) -> None:
    allowed, refused = (shell(curl) for curl in demo.curls)
    assert statuses(allowed) == ["200"], allowed
    assert 0 < json.loads(allowed.split("\n\n", 1)[1])["usage"]["completion_tokens"] <= 100
    assert statuses(refused) == ["429"], refused
    assert "request_exceeds_limit" in refused


def test_the_commands_of_the_readme(demo: Demo) -> None:
    [block] = [block for block in readme_blocks() if "curl" in block]
    for port, name in (("10000", "PORT"), ("8091", "QUOTA_PORT")):
        number = demo.ports[name] + (name == "QUOTA_PORT")
        block = block.replace(f"127.0.0.1:{port}", f"127.0.0.1:{number}")
    output = shell(block)
    assert statuses(output) == ["200", "429"], output
    streamed = [line for line in output.splitlines() if line.startswith("data: ")]
    assert streamed[-1] == "data: [DONE]"
    assert not any('"choices":[]' in line for line in streamed), "the usage chunk was asked for by us only"
    explained = json.loads(output.splitlines()[-1])
    assert explained["tenant"] == "tenant-a" and explained["limits"]


def test_the_printed_commands_are_those_of_the_readme(demo: Demo) -> None:
    [block] = [block for block in readme_blocks() if "curl" in block]
    commands = [line for line in block.replace("\\\n", "").splitlines() if line.startswith("curl")]
    printed = [curl.replace(f":{demo.ports['PORT']}/", ":10000/") for curl in demo.curls]
    assert printed == [" ".join(command.split()) for command in commands[:2]]


def test_ctrl_c_stops_everything(demo: Demo) -> None:
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(20) == 0
    for port in demo.ports.values():
        refused = subprocess.run(["curl", "-s", f"http://127.0.0.1:{port}/"], check=False, timeout=10)
        assert refused.returncode == 7, f"something still listens on {port}"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"PORT": "abc"}, "PORT"),
        ({"QUOTA_PORT": "99999"}, "QUOTA_PORT"),
        ({"STORE": "disk"}, "STORE"),
        ({"POLICY": "missing.yaml"}, "missing.yaml"),
        ({"ENVOY": "/missing/envoy"}, "/missing/envoy"),
        ({"UPSTREAM": "nowhere"}, "UPSTREAM"),
        ({"UPSTREAM": "ftp://nowhere:1"}, "UPSTREAM"),
        ({"UPSTREAM": "http://nowhere:1/path"}, "UPSTREAM"),
    ],
    ids=str,
)
def test_a_bad_setting_is_one_clear_line(changes: dict[str, str], named: str) -> None:
    _one_line(settings(**changes), named)


def test_a_bad_policy_is_one_clear_line(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 3\n")
    _one_line(settings(POLICY=str(policy)), f"{policy}:1:")


def test_a_busy_port_is_one_clear_line() -> None:
    env = settings()
    listener = subprocess.Popen(["python3", "-m", "http.server", env["ADMIN_PORT"], "--bind", "127.0.0.1"])
    try:
        probe = ["curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{env['ADMIN_PORT']}/"]
        eventually(lambda: subprocess.run(probe, check=False).returncode, lambda code: code == 0)
        _one_line(env, "ADMIN_PORT")
    finally:
        listener.kill()
        listener.wait()


def _one_line(env: dict[str, str], named: str) -> None:
    ended = subprocess.run(DEMO, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert named in line, line


def test_another_way_of_building_is_one_clear_line() -> None:
    ended = subprocess.run([*DEMO[:-1], "slow"], env=settings(), capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "demo: usage: scripts/demo [quick | debug]\n"


def test_make_demo_runs_what_it_builds() -> None:
    """And nothing else is built."""
    shown = subprocess.run(["make", "-n", "demo"], cwd=places.ROOT, capture_output=True, text=True, check=True).stdout
    built = [line for line in shown.splitlines() if re.match(r"scripts/build-wasm|cargo build", line)]
    assert built == [
        "scripts/build-wasm --quick",
        "cargo build -q --profile quick -p tokengate-ratelimit -p tokengate-demo-upstream --bins",
    ]
    assert re.search(r"^exec \S+ scripts/demo$", shown, re.MULTILINE), "it runs what is built by default, quick"


def test_make_help_names_every_variable() -> None:
    shown = subprocess.run(["make", "help"], cwd=places.ROOT, capture_output=True, text=True, check=True).stdout
    for name in ("PORT", "ADMIN_PORT", "QUOTA_PORT", "STORE", "REDIS_URL", "UPSTREAM", "POLICY", "PROVIDER_KEY", "ENVOY"):
        assert re.search(rf"^  {name}=", shown, re.MULTILINE), name


def test_the_readme_names_only_targets_that_exist() -> None:
    named = re.findall(r"(?:^|`)make ([a-z0-9-]+)", (places.ROOT / "README.md").read_text(), re.MULTILINE)
    assert {"demo", "test", "help", "build"} <= set(named)
    for target in named:
        subprocess.run(["make", "-n", target], cwd=places.ROOT, check=True, capture_output=True)
