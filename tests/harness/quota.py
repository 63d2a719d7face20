"""A quota service that answers what a test tells it to, and records every call. HTTP/2 without TLS.

For what the real service never does: garbage, resets, silence, amounts that a test wants to see on the wire.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events

from .loop import LoopThread
from .ports import free_port


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b"{}"


class Reset:
    """Cut the connection instead of answering."""


class Silence:
    """Never answer."""


@dataclass(frozen=True)
class Half:
    """The head and a part of the body; then silence, or a cut."""

    then_reset: bool


Answer = Reply | Reset | Silence | Half
Script = Callable[[dict[str, Any]], Answer]


def allow(reserve: dict[str, Any], version: str = "fake") -> Answer:
    """What the service says when there is room."""
    answer: dict[str, Any] = {
        "decision": "allow",
        "account": "account-1",
        "model": reserve.get("model"),
        "grant": {"max_output_tokens": reserve.get("max_output_tokens")},
        "limits": [],
        "policy_version": version,
    }
    return Reply(body=json.dumps(answer).encode())


@dataclass
class FakeQuota:
    models: list[dict[str, Any]]
    reserves: list[dict[str, Any]] = field(default_factory=list)
    settles: list[dict[str, Any]] = field(default_factory=list)
    on_reserve: Script = allow
    version: str = "fake"

    def __post_init__(self) -> None:
        self.port = free_port()
        self._thread = LoopThread("quota")
        self._server = self._thread.run(asyncio.start_server(self._serve, "127.0.0.1", self.port))

    def stop(self) -> None:
        self._thread.soon(self._server.close)
        self._thread.stop()

    def reset(self) -> None:
        self.on_reserve = allow
        self.reserves.clear()
        self.settles.clear()

    def settles_of(self, reserve: dict[str, Any]) -> list[dict[str, Any]]:
        return [item for item in self.settles if item["id"] == reserve["id"]]

    def _answer(self, path: str, body: bytes) -> Answer:
        match path:
            case "/v1/models":
                return Reply(body=json.dumps({"policy_version": self.version, "models": self.models}).encode())
            case "/v1/reserve":
                self.reserves.append(json.loads(body))
                return self.on_reserve(self.reserves[-1])
            case "/v1/settle":
                items = json.loads(body)
                self.settles.extend(items)
                results = [{"id": item["id"], "status": "settled"} for item in items]
                return Reply(body=json.dumps({"results": results, "policy_version": self.version}).encode())
        return Reply(404)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        connection.initiate_connection()
        calls: dict[int, tuple[str, bytearray]] = {}
        writer.write(connection.data_to_send())
        try:
            while data := await reader.read(1 << 16):
                for event in connection.receive_data(data):
                    cut = self._handle(event, connection, calls)
                    writer.write(connection.data_to_send())
                    if cut:
                        return
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _handle(
        self, event: Any, connection: h2.connection.H2Connection, calls: dict[int, tuple[str, bytearray]]
    ) -> bool:
        """Whether the connection is to be cut."""
        match event:
            case h2.events.RequestReceived():
                calls[event.stream_id] = (dict(event.headers)[b":path"].decode(), bytearray())
            case h2.events.DataReceived():
                calls[event.stream_id][1].extend(event.data)
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                path, body = calls.pop(event.stream_id)
                return self._send(connection, event.stream_id, self._answer(path, bytes(body)))
            case h2.events.StreamReset():
                calls.pop(event.stream_id, None)
        return False

    @staticmethod
    def _send(connection: h2.connection.H2Connection, stream: int, answer: Answer) -> bool:
        match answer:
            case Reply(status, body):
                connection.send_headers(stream, [(":status", str(status)), ("content-type", "application/json")])
                # Envoy opens its windows wide at the start; only the size of a frame is bounded.
                size = connection.max_outbound_frame_size
                for at in range(0, len(body), size):
                    connection.send_data(stream, body[at : at + size])
                connection.end_stream(stream)
            case Half(then_reset):
                connection.send_headers(stream, [(":status", "200"), ("content-type", "application/json")])
                connection.send_data(stream, b'{"decision":"allow",')
                return then_reset
            case Reset():
                return True
        return False
