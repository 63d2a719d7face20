"""Ports where a connection is never made: packets lost, a handshake that stops, a handshake that is cut."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from .loop import LoopThread

# What a listener without a backlog still takes; later packets to it are dropped, as by a firewall.
_ROOM = 2


@contextmanager
def dropped() -> Iterator[int]:
    """No answer to a SYN."""
    with ExitStack() as closing:
        listener = closing.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(_ROOM):
            filler = closing.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextmanager
def mute() -> Iterator[int]:
    """Accepts by its backlog, and never says a word: a TLS handshake waits."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        yield listener.getsockname()[1]


@contextmanager
def cut() -> Iterator[int]:
    """Hangs up on whoever has said something."""
    thread = LoopThread("cut")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    server = thread.run(asyncio.start_server(serve, "127.0.0.1", 0))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        thread.soon(server.close)
        thread.stop()
