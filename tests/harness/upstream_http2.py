"""A provider over HTTP/2: a test scripts what each request's stream is sent. For what HTTP/1.1 cannot say."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

from .loop import LoopThread

Headers = list[tuple[str, str]]


@dataclass
class Http2Exchange:
    """One request, and the means to answer it."""

    body: bytes
    _connection: h2.connection.H2Connection
    _stream: int
    _writer: asyncio.StreamWriter

    async def head(self, status: int, headers: Headers, end: bool = False) -> None:
        self._connection.send_headers(self._stream, [(":status", str(status)), *headers], end_stream=end)
        await self._flush()

    async def data(self, data: bytes, end: bool = False) -> None:
        self._connection.send_data(self._stream, data, end_stream=end)
        await self._flush()

    async def trailers(self, trailers: Headers) -> None:
        self._connection.send_headers(self._stream, trailers, end_stream=True)
        await self._flush()

    async def reset(self, code: h2.errors.ErrorCodes) -> None:
        self._connection.reset_stream(self._stream, code)
        await self._flush()

    async def go_away(self, last_stream: int | None = None) -> None:
        """Says goodbye, and hangs up."""
        self._connection.close_connection(last_stream_id=self._stream if last_stream is None else last_stream)
        await self._flush()
        self._writer.close()

    async def _flush(self) -> None:
        self._writer.write(self._connection.data_to_send())
        await self._writer.drain()


Script = Callable[[Http2Exchange], Awaitable[None]]


class Http2Upstream:
    def __init__(self) -> None:
        self.script: Script | None = None
        # Bodies of the requests that came.
        self.bodies: list[bytes] = []
        self._thread = LoopThread("http2 upstream")
        self._server = self._thread.run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._thread.soon(self._server.close)
        self._thread.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None, validate_outbound_headers=False)
        )
        connection.initiate_connection()
        bodies: dict[int, bytearray] = {}
        writer.write(connection.data_to_send())
        with contextlib.suppress(ConnectionError, h2.exceptions.ProtocolError):
            while data := await reader.read(1 << 16):
                for event in connection.receive_data(data):
                    await self._handle(event, connection, bodies, writer)
                writer.write(connection.data_to_send())
                await writer.drain()
        writer.close()

    async def _handle(
        self,
        event: h2.events.Event,
        connection: h2.connection.H2Connection,
        bodies: dict[int, bytearray],
        writer: asyncio.StreamWriter,
    ) -> None:
        match event:
            case h2.events.RequestReceived():
                bodies[event.stream_id] = bytearray()
            case h2.events.DataReceived():
                bodies[event.stream_id].extend(event.data)
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                body = bytes(bodies.pop(event.stream_id))
                self.bodies.append(body)
                assert self.script, "a request came without a script"
                await self.script(Http2Exchange(body, connection, event.stream_id, writer))
