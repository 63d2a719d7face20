from collections.abc import Iterator

import pytest

from harness.policy import Tenant
from harness.stack import Stack, running


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One Envoy with one worker, the service on its memory store, failing closed. Files may override it."""
    with running(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest.fixture
def stack(shared_stack: Stack) -> Iterator[Stack]:
    """The file's stack with a well-behaved upstream that has seen nothing yet; checked after every test."""
    shared_stack.upstream.reset()
    yield shared_stack
    shared_stack.check()


@pytest.fixture
def tenant(stack: Stack) -> Tenant:
    """A caller with room and with empty buckets."""
    return stack.tenant()
