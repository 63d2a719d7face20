"""The vocabularies that are built in by feature: what a filter with them holds and estimates is what tiktoken counts;
one without them says that it cannot."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from harness import chat, places
from harness.envoy import Config
from harness.oracle import ENCODINGS, oracle
from harness.policy import MODELS, Policy, Tenant
from harness.stack import Stack, running

# A model of each family, which `auto` knows by its name, and the vocabulary that the policy names for another.
FAMILIES = {
    "llama-3.1-70b-instruct": "llama3",
    "qwen2.5-coder-32b": "qwen2",
    "deepseek-chat": "deepseek_v3",
    "mistral-nemo": "mistral",
}
HOUSE = {f"house-{tokenizer}": tokenizer for tokenizer in FAMILIES.values()}
LIMIT = chat.body()["max_tokens"]
RANDOM = random.Random(5)
TEXTS = {
    "prose": f"It's 1,234 o'clock in the {chat.CANARY}'s HTMLParser — naïve, isn't it?\n\n\tx += 5;  \r\n" * 20,
    "languages": "今天天气很好。こんにちは・世界 한국어 и русский हिन्दी العربية ไทย 🙂👩\u200d👧 " * 50,
    # Longer than what one callback counts.
    "letters": "".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=150_000)),
    "ideographs": "的世界价格" * 10_000,
}


def with_models(document: dict[str, Any]) -> None:
    def model(name: str, tokenizer: str) -> dict[str, Any]:
        return {"name": name, "match": [name], "tokenizer": tokenizer, "max_output_tokens": 1000}

    house = [model(name, tokenizer) for name, tokenizer in HOUSE.items()]
    document["models"] = [*copy.deepcopy(MODELS), *(model(name, "auto") for name in FAMILIES), *house]


def with_vocabularies(config: Config) -> None:
    config.plugin["vm_config"]["code"]["local"]["filename"] = str(places.vocabularies())


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("vocabularies")
    with running(folder, edit=with_vocabularies, policy=Policy(edit=with_models)) as stack:
        yield stack


@pytest.fixture(scope="module")
def shipped_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("shipped"), policy=Policy(edit=with_models)) as stack:
        yield stack


@pytest.mark.parametrize("model", [*FAMILIES, *HOUSE, "gpt-4o", "gpt-4"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_prompt_holds_what_its_own_tokenizer_counts(stack: Stack, tenant: Tenant, model: str, text: str) -> None:
    messages = [{"role": "user", "content": text}]
    encoding = {**ENCODINGS, **FAMILIES, **HOUSE}[model]
    with stack.in_flight(tenant, model=model, messages=messages):
        stack.holds(tenant, oracle().prompt(messages, encoding) + LIMIT, model)


@pytest.mark.parametrize(("model", "encoding"), FAMILIES.items())
def test_an_answer_without_usage_is_estimated_with_it(stack: Stack, tenant: Tenant, model: str, encoding: str) -> None:
    stack.upstream.handler = chat.raw_stream(b"".join(chat.stream_events(chat.DELTAS, None)))
    answer = stack.ask(tenant, model=model, stream=True)
    assert (answer.status, answer.header("x-tokengate-tokenizer")) == (200, None)
    expected = oracle().prompt(chat.body()["messages"], encoding) + oracle().text("".join(chat.DELTAS), encoding)
    stack.settles_to(tenant, expected, requests=1, model=model)


@pytest.mark.parametrize("model", [*FAMILIES, *HOUSE])
def test_the_filter_that_ships_has_none_of_them_and_says_so(shipped_stack: Stack, model: str) -> None:
    stack, tenant = shipped_stack, shipped_stack.tenant()
    with stack.in_flight(tenant, model=model):
        counted = oracle().prompt(chat.body()["messages"])
        stack.holds(tenant, counted + -(-counted // 4) + LIMIT, model)
    assert stack.ask(tenant, model=model).header("x-tokengate-tokenizer") == "fallback"
