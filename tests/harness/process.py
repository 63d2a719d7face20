"""A program started for a test: its output in a file, stopped for certain at the end."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from .wait import eventually

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class StartFailed(Exception):
    """The program ended before it was ready. Carries what it printed."""


class Process:
    def __init__(self, command: list[str], log: Path, env: Mapping[str, str], cwd: Path) -> None:
        self.log = log
        self._name = Path(command[0]).name
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=dict(env), cwd=cwd
            )

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def running(self) -> bool:
        return self._child.poll() is None

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Returns when `ready`; raises StartFailed when the program ends first."""
        eventually(lambda: ready() or not self.running(), bool, START_TIMEOUT_S)
        if not self.running():
            raise StartFailed(f"{self._name} ended with {self._child.returncode}:\n{self.output()[-6000:]}")

    def stop(self) -> None:
        if self.running():
            self._child.terminate()
        try:
            self._child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def signal(self, number: int) -> None:
        self._child.send_signal(number)
