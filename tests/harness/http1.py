"""HTTP/1.1 by hand: exact bytes out, exact bytes in, and hanging up at any moment."""

import json
import select
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 30.0

Headers = Iterable[tuple[str, bytes | str]]


@dataclass
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def header(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) < 2, f"{name} was sent {len(values)} times: {values}"
        return values[0] if values else None

    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json()["error"]
        return error


def encode(method: str, path: str, headers: Headers, body: bytes, length: bool = True) -> bytes:
    head = [f"{method} {path} HTTP/1.1".encode(), b"host: gate.test"]
    if length and (body or method == "POST"):
        head.append(f"content-length: {len(body)}".encode())
    for name, value in headers:
        head.append(name.encode() + b": " + (value if isinstance(value, bytes) else value.encode()))
    return b"\r\n".join(head) + b"\r\n\r\n" + body


@dataclass
class Connection:
    port: int
    _buffer: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Sends; stops early when the server answers before it has read everything, as on a 413."""
        view = memoryview(data)
        while view:
            readable, writable, _ = select.select([self._socket], [self._socket], [], TIMEOUT_S)
            if readable:
                return
            assert writable, "the server reads no more"
            view = view[self._socket.send(view[: 1 << 16]) :]

    def head(self) -> Response:
        while b"\r\n\r\n" not in self._buffer:
            self._fill()
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = [line.split(":", 1) for line in lines]
        return Response(int(first.split(" ")[1]), [(name, value.strip()) for name, value in fields])

    def pieces(self, head: Response) -> Iterator[bytes]:
        """The body as it arrives, without its transfer coding."""
        if head.header("transfer-encoding") == "chunked":
            while size := int(self._line().split(b";")[0], 16):
                yield self._exactly(size + 2)[:-2]
            while self._line():
                pass
        elif (length := head.header("content-length")) is not None:
            yield self._exactly(int(length))
        elif head.status not in (204, 304):
            while True:
                yield self._buffer
                self._buffer = b""
                try:
                    self._fill()
                except ConnectionError:
                    return

    def response(self) -> Response:
        head = self.head()
        head.body = b"".join(self.pieces(head))
        return head

    def read_until(self, part: bytes) -> None:
        """Returns when the bytes have come that way, chunk frames and all."""
        while part not in self._buffer:
            self._fill()

    def close(self) -> None:
        self._socket.close()

    def shut_down_sending(self) -> None:
        """FIN, with the other direction open."""
        self._socket.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """RST, not FIN."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _fill(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError(f"closed by the server; unread: {self._buffer!r}")
        self._buffer += data

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._fill()
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data


def request(port: int, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Response:
    """One request on a connection of its own."""
    connection = Connection(port)
    try:
        connection.send(encode(method, path, [*headers, ("connection", "close")], body))
        return connection.response()
    finally:
        connection.close()
