"""A provider that does exactly what a test says: HTTP/1.1 over raw sockets, in a thread of the test process.

A test sets a handler; the handler gets an `Exchange` per request and sends whatever bytes it likes, when it
likes. Every request that arrives is recorded, byte for byte.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from .loop import LoopThread
from .ports import free_port
from .wait import becomes

HANDLER_TIMEOUT_S = 60.0
# A chat body of 8 MiB must fit into the reader's buffer limit.
_READ_LIMIT = 16 << 20


@dataclass
class Request:
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    # What a handler wants the test to know, for example the usage it reported.
    notes: dict[str, Any] = field(default_factory=dict)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def header(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) < 2, f"{name} arrived {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        return json.loads(self.body)


class Exchange:
    """One request and the means to answer it."""

    def __init__(
        self, upstream: "Upstream", request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.request = request
        self.keep_alive = True
        self._upstream, self._reader, self._writer = upstream, reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        self._upstream.sent_bytes += len(data)
        await self._writer.drain()

    async def head(self, status: int = 200, headers: list[tuple[str, bytes | str]] | None = None) -> None:
        """The head of an answer whose body follows in chunks, unless `headers` carries a content-length."""
        lines = [f"HTTP/1.1 {status} Scripted".encode()]
        fields = list(headers or [])
        if not any(name == "content-length" for name, _ in fields):
            fields.append(("transfer-encoding", "chunked"))
        for name, value in fields:
            lines.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()))
        await self.send(b"\r\n".join(lines) + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def finish(self, trailers: bytes = b"") -> None:
        await self.send(b"0\r\n" + trailers + b"\r\n")

    async def reply(self, status: int, body: bytes, headers: list[tuple[str, bytes | str]] | None = None) -> None:
        await self.head(status, [*(headers or []), ("content-length", str(len(body)))])
        await self.send(body)

    async def gone(self) -> None:
        """Waits until the proxy has closed the connection."""
        self.keep_alive = False
        try:
            while await self._reader.read(4096):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """RST, not FIN."""
        self.keep_alive = False
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Handler = Callable[[Exchange], Awaitable[None]]


class Gate:
    """Holds answers back until the test opens it; knows how many wait."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._open = asyncio.Event()
        self.waiting = 0

    async def wait(self) -> None:
        self.waiting += 1
        await asyncio.wait_for(self._open.wait(), HANDLER_TIMEOUT_S)

    def reached(self, count: int) -> None:
        """Returns when so many wait."""
        becomes(lambda: self.waiting, count)

    def open(self) -> None:
        self._thread.soon(self._open.set)


class Upstream:
    def __init__(self, default: Handler) -> None:
        self.port = free_port()
        self.requests: list[Request] = []
        self._faults: list[BaseException] = []
        self.sent_bytes = 0
        self._default = self.handler = default
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._thread = LoopThread("upstream")
        self._thread.run(self._listen())

    def stop(self) -> None:
        self._thread.run(self._close())
        self._thread.stop()

    def refuse(self) -> None:
        """From now on connections are refused, and none is left open."""
        self._thread.run(self._close())

    def accept(self) -> None:
        self._thread.run(self._listen())

    def reset(self) -> None:
        """Back to the default handler, with nothing recorded."""
        self.handler = self._default
        self.requests.clear()

    def take_faults(self) -> list[BaseException]:
        """What scripts have failed with since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def gate(self) -> Gate:
        return Gate(self._thread)

    def only_request(self) -> Request:
        assert len(self.requests) == 1, f"{len(self.requests)} requests reached the upstream"
        return self.requests[0]

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=_READ_LIMIT, backlog=1024)

    async def _close(self) -> None:
        if self._server:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writers.add(writer)
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                exchange = Exchange(self, request, reader, writer)
                await self.handler(exchange)
                if not exchange.keep_alive:
                    break
        except ConnectionError:
            # The proxy hung up; a test that cares looks at what the client saw.
            pass
        except Exception as fault:  # noqa: BLE001 - a broken script must fail its test, not this thread
            self._faults.append(fault)
        finally:
            self._writers.discard(writer)
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, path, _version = first.split(" ")
    fields = [line.split(":", 1) for line in lines]
    request = Request(method, path, [(name, value.strip()) for name, value in fields])
    if request.header("transfer-encoding") == "chunked":
        request.body = await _read_chunks(reader)
    elif length := request.header("content-length"):
        request.body = await reader.readexactly(int(length))
    return request


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    while (await reader.readline()).strip():
        pass
    return bytes(body)
