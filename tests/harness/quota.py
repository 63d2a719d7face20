"""A quota service that answers what a test tells it to, and records every call. HTTP/2 without TLS.

For what the real service never does: garbage, resets, silence, amounts that a test wants to see on the wire.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from .loop import LoopThread
from .ports import free_port


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, bytes | str], ...] = ()


class Reset:
    """Cut the connection instead of answering."""


class Silence:
    """Never answer."""


@dataclass(frozen=True)
class Half:
    """The head and a part of the body; then silence, or a cut."""

    then_reset: bool


@dataclass(frozen=True)
class Trickle:
    """The head and then white space, a byte at a time, for as long as the caller listens."""


class Later:
    """Answers when the test says what."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread, self._said = thread, asyncio.Event()
        self._answer: Answer = Silence()

    def release(self, answer: "Answer") -> None:
        self._answer = answer
        self._thread.soon(self._said.set)

    async def answer(self) -> "Answer":
        await self._said.wait()
        return self._answer


class After(Later):
    """Answers after so many seconds."""

    def __init__(self, delay: float, answer: "Answer") -> None:
        self._delay, self._then = delay, answer

    async def answer(self) -> "Answer":
        await asyncio.sleep(self._delay)
        return self._then


TRICKLE_S = 0.02

Answer = Reply | Reset | Silence | Half | Trickle | Later
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
    extends: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    on_reserve: Script = allow
    # The status of an extension.
    on_extend: Callable[[dict[str, Any]], str | Answer] = lambda item: "allow"
    # Whether a caller is known.
    on_identify: Callable[[dict[str, Any]], bool | Answer] = lambda question: True
    # What a batch of settles is answered, instead of being taken.
    on_settle: Callable[[], Answer | None] = lambda: None
    # What became of one that was taken.
    settled_as: Callable[[dict[str, Any]], str] = lambda item: "settled"
    # What the question for the model list is answered, instead of the list.
    on_models: Callable[[], Answer | None] = lambda: None
    version: str = "fake"
    # Further members of the model list.
    listed: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port = free_port()
        self._thread = LoopThread("quota")
        self._server = self._thread.run(asyncio.start_server(self._serve, "127.0.0.1", self.port))

    def stop(self) -> None:
        self._thread.soon(self._server.close)
        self._thread.stop()

    def reset(self) -> None:
        self.on_reserve = allow
        self.on_extend = lambda item: "allow"
        self.on_identify = lambda question: True
        self.on_settle = lambda: None
        self.settled_as = lambda item: "settled"
        self.on_models = lambda: None
        self.questions.clear()
        self.reserves.clear()
        self.settles.clear()
        self.extends.clear()

    def hold_next_reserve(self) -> Later:
        """The answer to the next reserve waits for the test; later ones are allowed."""
        later, known = Later(self._thread), len(self.reserves)
        self.on_reserve = lambda reserve: later if len(self.reserves) == known + 1 else allow(reserve)
        return later

    def settles_of(self, reserve: dict[str, Any]) -> list[dict[str, Any]]:
        return [item for item in self.settles if item["id"] == reserve["id"]]

    def _answer(self, path: str, body: bytes) -> Answer:
        match path:
            case "/v1/models":
                if (instead := self.on_models()) is not None:
                    return instead
                listed = {"policy_version": self.version, "models": self.models, **self.listed}
                return Reply(body=json.dumps(listed).encode())
            case "/v1/identify":
                self.questions.append(json.loads(body))
                known = self.on_identify(self.questions[-1])
                if not isinstance(known, bool):
                    return known
                return Reply(body=json.dumps({"known": known, "policy_version": self.version}).encode())
            case "/v1/reserve":
                self.reserves.append(json.loads(body))
                return self.on_reserve(self.reserves[-1])
            case "/v1/settle":
                items = json.loads(body)
                self.settles.extend(items)
                if (answer := self.on_settle()) is not None:
                    return answer
                results = [{"id": item["id"], "status": self.settled_as(item)} for item in items]
                return Reply(body=json.dumps({"results": results, "policy_version": self.version}).encode())
            case "/v1/extend":
                return self._extended(json.loads(body))
        return Reply(404)

    def _extended(self, items: list[dict[str, Any]]) -> Answer:
        self.extends.extend(items)
        results = []
        for item in items:
            status = self.on_extend(item)
            if not isinstance(status, str):
                return status
            held = item.get("hold_output_tokens") if status == "allow" else None
            results.append({"id": item["id"], "status": status, "hold_output_tokens": held})
        return Reply(body=json.dumps({"results": results, "policy_version": self.version}).encode())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding=None, validate_outbound_headers=False)
        connection = h2.connection.H2Connection(config)
        # A flood of requests comes over one connection.
        most = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 4096}
        connection.local_settings = h2.settings.Settings(client=False, initial_values=most)
        connection.initiate_connection()
        calls: dict[int, tuple[str, bytearray]] = {}
        writer.write(connection.data_to_send())
        try:
            while data := await reader.read(1 << 16):
                for event in connection.receive_data(data):
                    cut = self._handle(event, connection, calls, writer)
                    writer.write(connection.data_to_send())
                    if cut:
                        return
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _handle(
        self,
        event: Any,
        connection: h2.connection.H2Connection,
        calls: dict[int, tuple[str, bytearray]],
        writer: asyncio.StreamWriter,
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
                answer = self._answer(path, bytes(body))
                if isinstance(answer, Trickle):
                    self._thread.spawn(_trickle(connection, event.stream_id, writer))
                    return False
                if isinstance(answer, Later):
                    self._thread.spawn(self._answer_later(answer, connection, event.stream_id, writer))
                    return False
                return self._send(connection, event.stream_id, answer)
            case h2.events.StreamReset():
                calls.pop(event.stream_id, None)
        return False

    async def _answer_later(
        self, later: Later, connection: h2.connection.H2Connection, stream: int, writer: asyncio.StreamWriter
    ) -> None:
        answer = await later.answer()
        with contextlib.suppress(h2.exceptions.ProtocolError, ConnectionError):
            self._send(connection, stream, answer)
            writer.write(connection.data_to_send())
            await writer.drain()

    @staticmethod
    def _send(connection: h2.connection.H2Connection, stream: int, answer: Answer) -> bool:
        match answer:
            case Reply(status, body, headers):
                head = [(":status", str(status)), ("content-type", "application/json"), *headers]
                connection.send_headers(stream, head)
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


async def _trickle(connection: h2.connection.H2Connection, stream: int, writer: asyncio.StreamWriter) -> None:
    connection.send_headers(stream, [(":status", "200"), ("content-type", "application/json")])
    with contextlib.suppress(h2.exceptions.ProtocolError, ConnectionError):
        while True:
            connection.send_data(stream, b" ")
            writer.write(connection.data_to_send())
            await writer.drain()
            await asyncio.sleep(TRICKLE_S)
