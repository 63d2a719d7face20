"""What the set-up asks rustup for, on a machine of its own making: the programs on PATH are stand-ins that record how
they are called, and rustup's takes and refuses what rustup 1.29 does."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import places

TARGET = "wasm32-wasip1"
TOOLS = ("bash", "cat", "comm", "cut", "dirname", "env", "grep", "head", "ls", "mkdir", "rm", "sh", "sort", "tr")
SCRIPTS = ("build-wasm", "setup", "requirements-demo.txt", "requirements-envoy.txt")

RUSTUP = """#!/bin/sh
echo "$@" >>"$HOME/rustup-calls"
while :; do case $1 in -q | --quiet | -v | --verbose) shift ;; *) break ;; esac; done
command="$1 $2"
shift 2
case $command in
    "component list") echo rustc-x86_64; exit ;;
    "target add" | "component add") ;;
    *) echo "error: unrecognized subcommand '$command'" >&2; exit 1 ;;
esac
for name; do
    case $name in -*) echo "error: unexpected argument '$name' found" >&2; exit 1 ;; esac
done
"""
ADDS = RUSTUP + 'for name; do mkdir -p "$HOME/sysroot/lib/rustlib/$name/lib"; done\n'
CANNOT_DOWNLOAD = RUSTUP + "echo 'error: could not download file' >&2\nexit 1\n"
# As where the rustc on PATH is a distribution's own.
ADDS_FOR_ANOTHER_RUSTC = RUSTUP


@dataclass
class Machine:
    home: Path

    def has(self, name: str, script: str = "#!/bin/sh\n") -> None:
        program = self.home / "bin" / name
        program.write_text(script)
        program.chmod(0o755)

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.home / 'bin'}:{self.home / 'tools'}"
        return subprocess.run(
            [str(self.home / "scripts" / command[0]), *command[1:]],
            env={"HOME": str(self.home), "PATH": path, **environ},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def calls(self, name: str = "rustup") -> list[str]:
        log = self.home / f"{name}-calls"
        return log.read_text().splitlines() if log.exists() else []

    def way(self) -> str:
        return (self.home / "target/wasm-toolchain").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for folder in ("bin", "tools", "scripts", "tests", "sysroot/lib/rustlib"):
        (tmp_path / folder).mkdir(parents=True)
    for script in SCRIPTS:
        shutil.copy(places.ROOT / "scripts" / script, tmp_path / "scripts")
    shutil.copy(places.ROOT / "tests/requirements.txt", tmp_path / "tests")
    for tool in TOOLS:
        where = shutil.which(tool)
        assert where, tool
        (tmp_path / "tools" / tool).symlink_to(where)
    made = Machine(tmp_path)
    made.has("rustc", f'#!/bin/sh\n[ "$*" = "--print sysroot" ] && echo "{tmp_path}/sysroot"\n')
    made.has("apt-get", '#!/bin/sh\necho "$@" >>"$HOME/apt-get-calls"\n')
    made.has("id", "#!/bin/sh\necho 0\n")
    return made


def test_rustup_adds_the_target(machine: Machine) -> None:
    machine.has("rustup", ADDS)
    ran = machine.run("build-wasm", "--setup")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr == f"build-wasm: adding the Rust target {TARGET} (the filter is wasm)\n"
    assert (machine.way(), machine.calls("apt-get")) == ("rustup", [])


def test_nothing_is_asked_for_where_the_target_is_there(machine: Machine) -> None:
    machine.has("rustup", ADDS)
    (machine.home / "sysroot/lib/rustlib" / TARGET / "lib").mkdir(parents=True)
    ran = machine.run("build-wasm", "--setup")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert (machine.way(), machine.calls()) == ("rustup", [])


@pytest.mark.parametrize(
    ("rustup", "said"),
    [
        (CANNOT_DOWNLOAD, "rustup could not add it (see above)"),
        (ADDS_FOR_ANOTHER_RUSTC, "rustup could not add it (see above)"),
        (None, f"rustup is not here to add the Rust target {TARGET}"),
    ],
    ids=["no download", "another rustc", "no rustup"],
)
def test_where_rustup_cannot_debians_toolchain_builds(machine: Machine, rustup: "str | None", said: str) -> None:
    if rustup:
        machine.has("rustup", rustup)
    ran = machine.run("build-wasm", "--setup")
    assert ran.returncode == 0
    assert f"build-wasm: {said}; building the filter with Debian's toolchain instead\n" in ran.stderr
    assert ("error: could not download file" in ran.stderr) == (rustup == CANNOT_DOWNLOAD)
    assert machine.way() == "debian"
    assert len(machine.calls()) == (1 if rustup else 0)


def test_where_neither_can_it_says_what_to_do(machine: Machine) -> None:
    machine.has("rustup", CANNOT_DOWNLOAD)
    machine.has("id", "#!/bin/sh\necho 1000\n")
    ran = machine.run("build-wasm", "--setup")
    if ran.returncode == 0:
        pytest.skip("Debian's toolchain is installed on this machine")
    assert "rustup target add wasm32-wasip1" in ran.stderr.splitlines()[-1]
    assert "rustc-web" in ran.stderr.splitlines()[-1]


def test_a_way_that_was_chosen_is_taken_or_fails(machine: Machine) -> None:
    machine.has("rustup", CANNOT_DOWNLOAD)
    ran = machine.run("build-wasm", "--setup", TOKENGATE_WASM_TOOLCHAIN="rustup")
    assert ran.returncode == 1
    assert ran.stderr.endswith(f"rustup cannot add the Rust target {TARGET}; TOKENGATE_WASM_TOOLCHAIN=debian builds without it\n")
    assert machine.calls("apt-get") == []


def with_all_packages(machine: Machine) -> None:
    """As if pip had installed everything."""
    files = [*(machine.home / "scripts").glob("requirements-*.txt"), machine.home / "tests/requirements.txt"]
    wanted = {line for file in files for line in re.findall(r"^[A-Za-z0-9-]+==[0-9.]+", file.read_text(), re.MULTILINE)}
    (machine.home / ".venv").mkdir()
    # In the order that the script's own `sort` gives them.
    lines = "".join(f"{line}\n" for line in wanted)
    ordered = subprocess.run(["sort", "-u"], input=lines, capture_output=True, text=True, check=True, env={}).stdout
    (machine.home / ".venv/installed").write_text(ordered)


def test_the_tests_components_are_added(machine: Machine) -> None:
    machine.has("rustup", ADDS)
    for name in ("cargo", "cc", "curl", "redis-server"):
        machine.has(name)
    with_all_packages(machine)
    ran = machine.run("setup", "test")
    assert ran.returncode == 0, ran.stderr
    assert "error" not in ran.stderr
    assert machine.calls()[-1] == "-q component add clippy rustfmt"


def test_the_doctor_needs_no_compiler(machine: Machine) -> None:
    with_all_packages(machine)
    ran = machine.run("setup", "doctor")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.skipif(not shutil.which("rustup"), reason="there is no rustup on this machine to ask")
@pytest.mark.parametrize("kind", ["target", "component"])
def test_the_real_rustup_takes_these_calls(kind: str) -> None:
    text = "".join((places.ROOT / "scripts" / name).read_text() for name in ("build-wasm", "setup"))
    assert f"rustup -q {kind} add " in text and f"{kind} add -" not in text
    ran = subprocess.run(["rustup", "-q", kind, "add", "--help"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
