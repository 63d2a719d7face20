"""A real Redis on a port of its own, without persistence."""

import os
import signal
import socket
from pathlib import Path

from . import places
from .ports import free_port
from .process import Process


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


class Redis:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        command = [places.redis(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = Process(command, folder / "redis.log", os.environ, folder)
        self._process.wait_until(lambda: _answers(self.port))

    def freeze(self) -> None:
        """Accepts connections and commands, and answers nothing."""
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Does what it was told while frozen."""
        self._process.signal(signal.SIGCONT)

    def stop(self) -> None:
        self.thaw()
        self._process.stop()
