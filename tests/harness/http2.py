"""HTTP/2 by hand, with DATA frames cut at will, trailers, and RST_STREAM."""

import socket
from collections.abc import Iterable

import h2.config
import h2.connection
import h2.errors
import h2.events

from .http1 import TIMEOUT_S, Headers, Response

_WINDOW = 1 << 24


class StreamReset(Exception):
    """The server reset the stream."""


class Http2:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Validation off: a test may send what a well-behaved client would not.
        config = h2.config.H2Configuration(header_encoding=None, validate_outbound_headers=False)
        self._h2 = h2.connection.H2Connection(config)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW)
        self._flush()
        self._answer: Response | None = None
        self._ended = False

    def start(self, method: str, path: str, headers: Headers, end: bool = False) -> int:
        stream = self._h2.get_next_available_stream_id()
        pseudo = [(":method", method), (":scheme", "http"), (":authority", "gate.test"), (":path", path)]
        self._answer, self._ended = None, False
        self._h2.send_headers(stream, [*pseudo, *headers], end_stream=end)
        self._flush()
        return stream

    def data(self, stream: int, pieces: Iterable[bytes], end: bool) -> None:
        """Each piece in frames of its own; an answer that is complete early ends the sending."""
        for piece in pieces:
            while piece and not self._ended:
                room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
                if room <= 0:
                    self._receive()
                    continue
                self._h2.send_data(stream, piece[:room])
                piece = piece[room:]
                self._flush()
        if end and not self._ended:
            self._h2.end_stream(stream)
            self._flush()

    def frame(self, stream: int, data: bytes, end: bool = False) -> None:
        """One DATA frame, an empty one too."""
        self._h2.send_data(stream, data, end_stream=end)
        self._flush()

    def trailers(self, stream: int, trailers: Headers) -> None:
        self._h2.send_headers(stream, list(trailers), end_stream=True)
        self._flush()

    def reset(self, stream: int) -> None:
        if self._ended:
            return
        self._h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    def response(self, until: bytes | None = None) -> Response:
        """The whole answer, or what has come as soon as its body contains `until`."""
        while not self._ended and not (until and self._answer and until in self._answer.body):
            self._receive()
        assert self._answer, "the stream ended without an answer"
        return self._answer

    def head(self) -> Response:
        """The answer as far as it has come, its headers at least."""
        while not self._answer:
            self._receive()
        return self._answer

    def close(self) -> None:
        self._socket.close()

    def _flush(self) -> None:
        self._socket.sendall(self._h2.data_to_send())

    def _receive(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("closed by the server")
        for event in self._h2.receive_data(data):
            match event:
                case h2.events.ResponseReceived():
                    fields = [(name.decode(), value.decode("latin-1")) for name, value in event.headers]
                    self._answer = Response(int(dict(fields)[":status"]), fields)
                case h2.events.DataReceived():
                    assert self._answer
                    self._answer.body += event.data
                    self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.StreamEnded():
                    self._ended = True
                case h2.events.StreamReset():
                    # A server that has answered in full may then refuse the rest of the request.
                    if not self._ended:
                        raise StreamReset(f"error code {event.error_code}")
        self._flush()


def request(
    port: int, headers: Headers, pieces: Iterable[bytes], path: str, trailers: Headers | None = None
) -> Response:
    """One POST on a connection of its own."""
    client = Http2(port)
    try:
        stream = client.start("POST", path, headers)
        client.data(stream, pieces, end=trailers is None)
        if trailers is not None:
            client.trailers(stream, trailers)
        return client.response()
    finally:
        client.close()
