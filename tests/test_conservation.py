"""After a mixed run every bucket holds exactly what was used, to the token, and no hold is left open."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from openai import APIStatusError

from harness import chat
from harness.oracle import oracle
from harness.policy import Plan, Tenant
from harness.service import Bucket
from harness.stack import Stack, running
from harness.upstream import Exchange
from harness.wait import becomes

ADMITTED, REFUSED = 10, 6
PLANS = {"roomy": Plan(), "ten-requests": Plan(requests=ADMITTED)}
SCRIPTS = ["json", "stream", "stream-usage", "abort-1", "abort-4", f"abort-{len(chat.DELTAS)}"]
ERRORS = ["error-400", "error-429", "error-500", "error-503"]


@pytest.fixture(scope="module", params=["memory", "redis"])
def shared_stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp(request.param)
    with running(folder, plans=PLANS, redis=request.param == "redis", concurrency=2) as stack:
        yield stack


@dataclass(frozen=True)
class Job:
    number: int
    tenant: Tenant
    model: str
    script: str


async def provider(exchange: Exchange) -> None:
    """Does what the job says, and notes what a bucket must hold for it."""
    request = exchange.request
    kind, _, argument = (request.header("x-script") or "").partition("-")
    body = request.json()
    if kind == "error":
        request.notes["charge"] = 0
        await chat.provider_error(int(argument))(exchange)
    elif kind == "abort":
        sent = chat.DELTAS[: int(argument)]
        request.notes["charge"] = oracle().prompt(body["messages"], body["model"])
        request.notes["charge"] += oracle().text("".join(sent), body["model"])
        await chat.stream_until_gone(sent)(exchange)
    else:
        request.notes["charge"] = chat.usage_of(body).total
        await chat.answer()(exchange)


def run(stack: Stack, job: Job) -> bool:
    """Whether the gate let the job through."""
    options: dict[str, Any] = {"stream": job.script.startswith(("stream", "abort"))}
    if job.script == "stream-usage":
        options["stream_options"] = {"include_usage": True}
    headers = {"x-script": job.script, "x-job": str(job.number)}
    messages = [{"role": "user", "content": f"{chat.PROMPT} Job {job.number}."}]
    body = chat.body(model=job.model, messages=messages, **options)
    with stack.openai(job.tenant) as client:
        try:
            answer = client.chat.completions.create(**body, extra_headers=headers)
        except APIStatusError as refusal:
            return refusal.response.headers.get("x-tokengate-refused-by") != "quota"
        if job.script.startswith("abort"):
            texts = (chunk.choices[0].delta.content for chunk in answer)
            wanted = int(job.script.partition("-")[2])
            # The role chunk has empty content and is no delta.
            for _ in itertools.islice(filter(None, texts), wanted):
                pass
            answer.close()
        elif options["stream"]:
            assert "".join(c.choices[0].delta.content or "" for c in answer if c.choices) == "".join(chat.DELTAS)
        return True


def test_every_bucket_equals_what_was_used(stack: Stack) -> None:
    stack.upstream.handler = provider
    roomy, limited = [stack.tenant(), stack.tenant()], stack.tenant("ten-requests")
    callers = [(tenant, model) for tenant in roomy for model in ("gpt-4o", "gpt-4")]
    plans = [(tenant, model, script) for script in (SCRIPTS + ERRORS) * 2 for tenant, model in callers]
    plans += [(limited, "gpt-4o", script) for script in itertools.islice(itertools.cycle(SCRIPTS), ADMITTED + REFUSED)]
    jobs = [Job(number, *plan) for number, plan in enumerate(plans)]

    with ThreadPoolExecutor(12) as pool:
        admitted = dict(zip([job.number for job in jobs], pool.map(lambda job: run(stack, job), jobs), strict=True))

    arrived = {int(request.header("x-job") or -1): request for request in stack.upstream.requests}
    assert len(arrived) == len(stack.upstream.requests), "no job was sent twice"
    assert {number for number, passed in admitted.items() if passed} == set(arrived)
    assert sum(admitted[job.number] for job in jobs if job.tenant == limited) == ADMITTED

    expected: dict[tuple[str, str], Bucket] = defaultdict(lambda: Bucket(0, 0))
    for number, request in arrived.items():
        bucket = (jobs[number].tenant.name, jobs[number].model)
        so_far = expected[bucket]
        expected[bucket] = Bucket(so_far.tokens + request.notes["charge"], so_far.requests + 1, open_holds=0)
    becomes(lambda: {bucket: stack.service.bucket(*bucket) for bucket in expected}, dict(expected), 5)
