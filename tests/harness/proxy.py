"""A TCP proxy in front of the quota service that can refuse, go silent, and hold what it carries."""

import asyncio
import contextlib

from .loop import LoopThread
from .ports import free_port


class Proxy:
    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._thread = LoopThread("proxy")
        self._answers = asyncio.Event()
        self._answers.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread.run(self._listen())

    def silence(self) -> None:
        """Requests still reach the service; its answers wait."""
        self._thread.soon(self._answers.clear)

    def speak(self) -> None:
        """Held answers go out, and later ones at once."""
        self._thread.soon(self._answers.set)

    def refuse(self) -> None:
        """Connections are cut and refused."""
        self._thread.run(self._close())

    def accept(self) -> None:
        self._thread.run(self._listen())

    def turn_to(self, target: int) -> None:
        """New connections go to another service."""
        self._target = target

    def stop(self) -> None:
        self._thread.run(self._close())
        self._thread.stop()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _close(self) -> None:
        if self._server:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back_writer}
        forward = asyncio.create_task(self._pump(reader, back_writer, None))
        backward = asyncio.create_task(self._pump(back_reader, writer, self._answers))
        await asyncio.wait({forward, backward}, return_when=asyncio.FIRST_COMPLETED)
        for task in (forward, backward):
            task.cancel()
        for end in (writer, back_writer):
            self._writers.discard(end)
            end.transport.abort()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if gate:
                    await gate.wait()
                writer.write(data)
                await writer.drain()
