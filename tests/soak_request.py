"""One request of the soak: sent over either protocol, and left when it is to be left."""

import time
from dataclasses import dataclass, field

from harness import chat, http1, http2
from harness.http1 import Headers
from harness.policy import Tenant
from harness.upstream import Handler

# The caller's header by which the scripted provider finds what it has to do.
NUMBER = "x-soak"
TRAILERS = [("x-checksum", "abc")]


@dataclass
class Request:
    """`tokens` and `requests` are bounds, least and most."""

    tenant: Tenant
    model: str
    body: bytes
    status: tuple[int, ...]
    tokens: tuple[int, int]
    requests: tuple[int, int]
    handler: Handler | None = None
    headers: list[tuple[str, bytes | str]] = field(default_factory=list)
    path: str = chat.PATH
    # Leaves after so many seconds, or so many bytes of the answer.
    leaves_after_s: float | None = None
    leaves_after_bytes: int | None = None
    over_http2: bool = False
    # The provider breaks off.
    is_cut: bool = False

    def may_end_early(self) -> bool:
        return self.is_cut or self.leaves_after_s is not None or self.leaves_after_bytes is not None

    def send(self, port: int, number: int | str) -> int | None:
        """The answer's status, or None when the caller left or the answer was cut."""
        fields = [self.tenant.bearer, (NUMBER, str(number)), *self.headers]
        return self._http2(port, fields) if self.over_http2 else self._http1(port, fields)

    def _http1(self, port: int, fields: Headers) -> int | None:
        client = http1.Connection(port)
        try:
            client.send(http1.encode("POST", self.path, [*fields, ("connection", "close")], self.body))
            if self.leaves_after_s is not None:
                time.sleep(self.leaves_after_s)
                return None
            head, read = client.head(), 0
            for piece in client.pieces(head):
                read += len(piece)
                if self.leaves_after_bytes is not None and read >= self.leaves_after_bytes:
                    return None
            return head.status
        except (ConnectionError, ValueError):
            return None
        finally:
            client.close() if self.leaves_after_bytes is None else client.abort()

    def _http2(self, port: int, fields: Headers) -> int | None:
        client = http2.Http2(port)
        try:
            stream = client.start("POST", self.path, fields)
            if self.leaves_after_s is not None:
                client.data(stream, [self.body[:20]], end=False)
                time.sleep(self.leaves_after_s)
                client.reset(stream)
                return None
            client.data(stream, [self.body[:33], self.body[33:]], end=False)
            client.trailers(stream, TRAILERS)
            return client.response().status
        except (ConnectionError, http2.StreamReset):
            return None
        finally:
            client.close()
