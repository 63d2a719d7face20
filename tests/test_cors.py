"""What `envoy.yaml` offers in comments: web pages that call from a browser, with Envoy's own cors filter in front."""

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from harness import chat, http1, places
from harness.envoy import Config
from harness.policy import Tenant
from harness.routes import connection_manager, filters
from harness.stack import Stack, running

ORIGIN = "https://app.example.com"
BODY = chat.encode(chat.body())


def commented(first: str) -> Any:
    """The YAML in the comment block from the line that begins so."""
    lines = (places.ROOT / "envoy.yaml").read_text().splitlines()
    [start] = [at for at, line in enumerate(lines) if re.match(rf"\s*# {re.escape(first)}", line)]
    block = []
    for line in lines[start:]:
        match = re.match(r"\s*# (.*)", line)
        if not match:
            break
        block.append(match[1])
    return yaml.safe_load(textwrap.dedent("\n".join(block)))


def with_cors(config: Config) -> None:
    host = connection_manager(config)["route_config"]["virtual_hosts"][0]
    host.update(commented("typed_per_filter_config:"))
    filters(config)[0:0] = commented("- name: envoy.filters.http.cors")


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("cors"), edit=with_cors) as stack:
        yield stack


def preflight(stack: Stack, origin: str) -> http1.Response:
    asked = [("access-control-request-method", "POST"), ("access-control-request-headers", "authorization")]
    return http1.request(stack.envoy.port, "OPTIONS", chat.PATH, [("origin", origin), *asked])


def test_a_preflight_is_answered_in_front(stack: Stack) -> None:
    response = preflight(stack, ORIGIN)
    assert (response.status, response.header("access-control-allow-origin")) == (200, ORIGIN)
    assert "POST" in (response.header("access-control-allow-methods") or "")
    assert "authorization" in (response.header("access-control-allow-headers") or "")
    assert stack.upstream.requests == []


def test_another_pages_preflight_gets_no_permission_and_goes_nowhere(stack: Stack) -> None:
    response = preflight(stack, "https://elsewhere.example.com")
    assert response.header("access-control-allow-origin") is None
    assert stack.upstream.requests == []


def test_a_page_may_read_an_answer_and_its_limits(stack: Stack, tenant: Tenant) -> None:
    response = stack.post([tenant.bearer, ("origin", ORIGIN)], BODY)
    assert (response.status, response.header("access-control-allow-origin")) == (200, ORIGIN)
    exposed = re.split(r",\s*", response.header("access-control-expose-headers") or "")
    limits = [name for name, _ in response.headers if name.startswith("x-ratelimit-")]
    assert limits and {*limits, "retry-after", "x-request-id"} <= {*exposed}
    stack.settles_to(tenant, chat.usage_of(chat.body()).total, requests=1)


def test_a_page_may_read_why_it_was_refused(stack: Stack) -> None:
    response = stack.post([("origin", ORIGIN)], BODY)
    assert response.status == 401
    assert response.header("access-control-allow-origin") == ORIGIN
    assert response.error()["code"] == "missing_identity"
