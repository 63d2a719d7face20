"""HTTP/2 as an attacker writes it: many requests in one write, each of them reset as soon as it was sent."""

import socket
import struct

import hpack

from .http1 import TIMEOUT_S, Headers

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS = 0, 1, 3, 4
_END_STREAM, _END_HEADERS = 1, 4
_CANCEL = struct.pack(">I", 8)


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    client.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
    return client


def block(path: str, headers: Headers, method: str = "POST") -> bytes:
    """A header block that any stream can have: it leaves nothing in the connection's table."""
    pseudo = [(":method", method), (":scheme", "http"), (":authority", "gate.test"), (":path", path)]
    return bytes(hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*field) for field in [*pseudo, *headers]]))


def requests(first: int, count: int, headers: bytes, body: bytes = b"", reset: bool = True) -> bytes:
    """The frames of requests number `first` and on, all of them whole, and reset at once."""
    frames = []
    for stream in range(2 * first + 1, 2 * (first + count) + 1, 2):
        frames.append(_frame(_HEADERS, _END_HEADERS | (0 if body else _END_STREAM), stream, headers))
        if body:
            frames.append(_frame(_DATA, _END_STREAM, stream, body))
        if reset:
            frames.append(_frame(_RST, 0, stream, _CANCEL))
    return b"".join(frames)


def is_closed(client: socket.socket) -> bool:
    """Reads what the server has to say; True once it has hung up, False when it says nothing for a while."""
    client.settimeout(2)
    try:
        while client.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
