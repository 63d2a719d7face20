"""Exactly as many are admitted as fit, however many ask at once on however many proxies and workers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import chat, http1
from harness.oracle import oracle
from harness.policy import Plan
from harness.stack import Stack, running
from harness.wait import becomes

CALLERS, FIT, WORKERS = 48, 7, 2
DECISION_TIMEOUT_S = 40


def hold() -> int:
    return oracle().prompt(chat.body()["messages"]) + int(chat.body()["max_tokens"])


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    plans = {
        "by-requests": Plan(requests=FIT),
        # One token short of one more.
        "by-tokens": Plan(tokens=(FIT + 1) * hold() - 1),
    }
    folder = tmp_path_factory.mktemp("concurrency")
    with running(folder, plans=plans, redis=True, envoys=2, concurrency=WORKERS) as stack:
        yield stack


@pytest.mark.parametrize(("plan", "code"), [("by-requests", "rpm_limit_exceeded"), ("by-tokens", "tpm_limit_exceeded")])
def test_exactly_as_many_are_admitted_as_fit(stack: Stack, plan: str, code: str) -> None:
    tenant = stack.tenant(plan)
    # The upstream answers nobody until every caller is either waiting there or refused: no refund helps anyone.
    gate = stack.upstream.gate()
    stack.upstream.handler = chat.answer(gate=gate)
    body = chat.encode(chat.body())
    refused: list[http1.Response] = []

    def ask(number: int) -> http1.Response:
        port = stack.envoys[number % 2].port
        answer = http1.request(port, "POST", chat.PATH, [tenant.bearer], body)
        if answer.status != 200:
            refused.append(answer)
        return answer

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = [pool.submit(ask, number) for number in range(CALLERS)]
        try:
            becomes(lambda: gate.waiting + len(refused), CALLERS, DECISION_TIMEOUT_S)
            waiting = gate.waiting
        finally:
            gate.open()
    assert waiting == FIT
    assert [answer.result().status for answer in answers].count(200) == FIT
    assert {(answer.status, answer.error()["code"]) for answer in refused} == {(429, code)}
    assert len(stack.upstream.requests) == FIT, "the refused reached nobody"
    stack.settles_to(tenant, FIT * chat.usage_of(chat.body()).total, FIT)
    for envoy in stack.envoys:
        by_worker = envoy.stats(r"^listener\..*worker_\d+\.downstream_cx_total$")
        busy = [name for name, count in by_worker.items() if count and "admin" not in name]
        assert len(busy) == WORKERS, f"the callers did not meet every worker: {by_worker}"
