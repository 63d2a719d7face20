"""The first moments of a worker, before it has the model list: nobody has more rights because it is missing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import chat, http1
from harness.envoy import Envoy
from harness.policy import MODELS, Tenant
from harness.quota import Answer, FakeQuota, Reply, Silence
from harness.refusals import assert_refused
from harness.stack import FakeStack
from harness.upstream import Upstream
from harness.wait import eventually

CALLER = Tenant("any", "any")
PLAN = ("x-end-user-plan", "free")
LISTED = {"asserted_headers": [PLAN[0]]}
AWAY = Reply(503)


@contextmanager
def without_models(folder: Path, on_models: Callable[[], Answer | None], **plugin: Any) -> Iterator[FakeStack]:
    upstream, quota = Upstream(chat.answer()), FakeQuota(MODELS, listed=LISTED)
    quota.on_models = on_models
    try:
        envoy = Envoy(folder, upstream.port, quota.port, plugin)
        stack = FakeStack(upstream, [envoy], quota)
        try:
            yield stack
            stack.check()
        finally:
            envoy.stop()
    finally:
        quota.stop()
        upstream.stop()


def send(stack: FakeStack, method: str = "POST", path: str = chat.PATH, **members: Any) -> http1.Connection:
    client = http1.Connection(stack.envoy.port)
    body = chat.encode(chat.body(**members)) if method == "POST" else b""
    client.send(http1.encode(method, path, [CALLER.bearer, PLAN], body))
    return client


@pytest.mark.parametrize(("method", "path"), [("POST", chat.PATH), ("GET", "/v1/models")])
def test_a_request_waits_for_the_list(tmp_path: Path, method: str, path: str) -> None:
    tries: list[int] = []

    def late() -> Answer | None:
        tries.append(1)
        return AWAY if not is_there else None

    is_there: list[bool] = []
    with without_models(tmp_path, late, quota={"timeout_ms": 10_000}) as stack:
        client = send(stack, method, path, max_tokens=999_999)
        # Asked again and again, not once in a second.
        before = len(tries)
        eventually(lambda: len(tries), lambda count: count >= before + 10, 2)
        assert (stack.quota.reserves, stack.upstream.requests) == ([], [])
        is_there.append(True)
        assert client.response().status == 200
        client.close()
        [reserve] = stack.quota.reserves
        assert reserve["asserted"] == dict([PLAN]), "the assertion counts"
        seen = stack.upstream.only_request()
        assert (seen.all(PLAN[0]), seen.all("authorization").count(CALLER.bearer[1])) == ([], 0)
        if method == "POST":
            assert seen.json()["max_tokens"] == 1000, "and so does the model's maximum"


@pytest.mark.parametrize("answer", [AWAY, Silence()], ids=["503", "silence"])
@pytest.mark.parametrize(("method", "path"), [("POST", chat.PATH), ("GET", "/v1/models")])
def test_a_list_that_does_not_come_is_no_answer(tmp_path: Path, answer: Answer, method: str, path: str) -> None:
    with without_models(tmp_path, lambda: answer, quota={"timeout_ms": 300}) as stack:
        client = send(stack, method, path)
        assert_refused(client.response(), 503, "api_error", "quota_unavailable")
        client.close()
        assert (stack.quota.reserves, stack.upstream.requests) == ([], [])


def test_what_needs_no_list_is_refused_at_once(tmp_path: Path) -> None:
    with without_models(tmp_path, Silence, quota={"timeout_ms": 10_000}) as stack:
        assert_refused(stack.post([], chat.body()), 401, "authentication_error", "missing_identity")
        assert_refused(
            stack.post([CALLER.bearer], chat.body(), "/v1/files"), 404, "invalid_request_error", "unknown_endpoint"
        )


def test_open_serves_without_the_list_and_says_so(tmp_path: Path) -> None:
    with without_models(tmp_path, lambda: AWAY, quota={"timeout_ms": 300}, failure_mode="open") as stack:
        client = send(stack)
        response = client.response()
        client.close()
        assert (response.status, response.header("x-tokengate-degraded")) == (200, "open")
        assert stack.envoy.stats("tokengate_degraded")
