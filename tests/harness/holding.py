"""`hold_at: body`: the other way of holding a request. The whole suite can run with it."""

import copy
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .envoy import Config

BUFFER = {
    "name": "envoy.filters.http.buffer",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
        "max_request_bytes": 16 << 20,
    },
}

# What a run of the suite is about: `headers`, as envoy.yaml has it, or `body`.
HOLD_AT = os.environ.get("TOKENGATE_TEST_HOLD_AT", "headers")
assert HOLD_AT in ("headers", "body"), HOLD_AT


def at_body(config: "Config") -> None:
    """Without the flag, and with Envoy's own buffer filter behind ours, which holds the headers."""
    config.set_plugin({"hold_at": "body"})
    config.plugin.pop("allow_on_headers_stop_iteration", None)
    filters = config.listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    names = [entry["name"] for entry in filters]
    if BUFFER["name"] not in names:
        filters.insert(names.index("tokengate") + 1, copy.deepcopy(BUFFER))


def needs_headers(reason: str) -> pytest.MarkDecorator:
    """For what there is under `hold_at: headers` only."""
    return pytest.mark.skipif(HOLD_AT != "headers", reason=reason)


def as_this_run_does(config: "Config") -> None:
    if HOLD_AT == "body":
        at_body(config)
