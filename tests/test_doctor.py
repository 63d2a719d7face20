"""`make doctor`: the configuration that ships passes, and each thing that can be wrong with one is named."""

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import places

sys.path.insert(0, str(places.ROOT / "scripts"))

from doctor import settings  # noqa: E402
from doctor.checks import CHECKS, examine  # noqa: E402
from doctor.finding import Finding  # noqa: E402
from doctor.node import Node  # noqa: E402
from doctor.parts import gateways  # noqa: E402
from doctor_cases import CASES, CORS, CORS_POLICY, DROP, ENVIRON, ROOTS, SWITCHED_OFF, Case, http_filter  # noqa: E402

SHIPPED = yaml.safe_load((places.ROOT / "envoy.yaml").read_text())


def findings(document: Any, environ: Mapping[str, str] = ENVIRON) -> list[Finding]:
    return examine([Node(document)], environ)[0]


def doctor(*files: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/doctor", *map(str, files)]
    inherited = {name: value for name, value in os.environ.items() if name not in ENVIRON}
    return subprocess.run(
        command, cwd=places.ROOT, env={**inherited, **environ}, capture_output=True, text=True, timeout=30
    )


def changed(case: Case) -> Any:
    """The shipped configuration with the case's edits. `filter` edits are to the JSON that the filter gets."""
    document = copy.deepcopy(SHIPPED)
    for path, value in case.edits.items():
        root, _, rest = path.partition(" ")
        if root == "filter":
            text = ROOTS["plugin"](document)["configuration"]
            inner = json.loads(text["value"])
            put(inner, rest.split("/"), value)
            text["value"] = json.dumps(inner)
        else:
            put(ROOTS[root](document), rest.split("/"), value)
    return document


def put(target: Any, keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
    last = keys[-1]
    if last == "+":
        target.insert(0 if isinstance(value, dict) and value.pop("first", False) else len(target) - 1, value)
    elif value is DROP:
        del target[int(last) if isinstance(target, list) else last]
    else:
        target[last] = value


def test_the_shipped_configuration_passes() -> None:
    assert examine([Node(SHIPPED)], ENVIRON) == ([], [])
    ran = doctor(Path("envoy.yaml"), **ENVIRON)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "envoy.yaml: no errors, no warnings\n", "")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{' '.join(case.edits)}")
def test_what_is_wrong_is_named(case: Case) -> None:
    document = changed(case)
    found = findings(document)
    wanted = [
        one
        for one in found
        if one.severity == case.severity
        and case.says in f"{one.what} | {one.instead}"
        and one.where.endswith(case.where)
    ]
    assert len(wanted) == 1, found
    [gateway] = gateways([Node(document)], ENVIRON)
    speaking = {check.__name__ for check in CHECKS if list(check(gateway))}
    assert speaking == {case.check, *case.also}


def test_every_check_has_a_failing_case() -> None:
    assert {check.__name__ for check in CHECKS} == {case.check for case in CASES}


@pytest.mark.parametrize(
    "edits",
    [
        {"plugin allow_on_headers_stop_iteration": DROP, "filter hold_at": "body", "hcm http_filters/+": {
            "name": "envoy.filters.http.buffer",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
                "max_request_bytes": 16777216,
            },
        }},
        {"route idle_timeout": DROP},
        {"entry request_body_buffer_limit": "16777216", "listener per_connection_buffer_limit_bytes": DROP},
        {"entry typed_per_filter_config": SWITCHED_OFF, "route timeout": DROP,
         "hcm route_config/virtual_hosts/0/routes/+": {
             "first": True, "match": {"path": "/v1/chat/completions"},
             "route": {"cluster": "provider", "timeout": "0s"},
             "request_headers_to_add": [{"header": {"key": "authorization", "value": "Bearer x"}}]}},
        {"entry match": {"safe_regex": {"regex": "/v1/.*"}}},
        {"hcm path_with_escaped_slashes_action": "REJECT_REQUEST"},
        {"hcm local_reply_config/mappers/0/filter": {"response_flag_filter": {"flags": ["UF", "UC"]}}},
        {"hcm local_reply_config/mappers/0/filter": {"status_code_filter": {
            "comparison": {"op": "EQ", "value": {"default_value": 504, "runtime_key": "x"}}}}},
        {"quota typed_extension_protocol_options": DROP, "quota http2_protocol_options": {}},
        {"hcm codec_type": "HTTP1", "hcm http2_protocol_options": DROP},
        {"filter quota/token_env": "TOKEN", "plugin vm_config/environment_variables": {"host_env_keys": ["TOKEN"]}},
        {"host typed_per_filter_config": CORS_POLICY, "hcm http_filters/+": {"first": True, **http_filter(CORS)}},
        {"bootstrap layered_runtime": {"layers": [{"name": "a", "static_layer": {
            "overload.premature_reset_total_stream_count": 50, "http": {"max_requests_per_io_cycle": "2"}}}]}},
        {"bootstrap layered_runtime": {"layers": [{"name": "a", "rtds_layer": {"name": "a"}}]}},
        {"bootstrap overload_manager/resource_monitors/0": DROP,
         "bootstrap layered_runtime/layers/0/static_layer/envoy.resource_limits.listener.llm.connection_limit": 500},
        {"hcm http_protocol_options/ignore_http_11_upgrade": [{"safe_regex": {"regex": "TLS/.*"}}]},
        {"hcm http_protocol_options/ignore_http_11_upgrade": [{"exact": "h2"}, {"exact": "TLS/1.2"}]},
        {"filter identity/credential": "forward", "entry request_headers_to_add": DROP},
        {"filter identity/sources": [{"jwt": {"tenant": "org"}}], "hcm http_filters/+": {
            "first": True, **http_filter("http.jwt_authn.v3.JwtAuthentication"), "name": "envoy.filters.http.jwt_authn"}},
    ],
    ids=lambda edits: " ".join(edits),
)  # fmt: skip
def test_what_is_right_in_another_way_passes(edits: dict[str, Any]) -> None:
    assert findings(changed(Case("", edits, ""))) == []


def test_a_route_that_no_metered_request_takes_is_left_alone() -> None:
    case = Case("", {"hcm route_config/virtual_hosts/0/routes/+": {
        "first": True, "match": {"prefix": "/health"}, "route": {"cluster": "provider"}}}, "")  # fmt: skip
    assert findings(changed(case)) == []


def test_camel_case_and_json_are_read_alike(tmp_path: Path) -> None:
    def camel(value: Any) -> Any:
        if isinstance(value, list):
            return [camel(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {re.sub("_([a-z0-9])", lambda match: match[1].upper(), key): camel(one) for key, one in value.items()}

    document = camel(SHIPPED)
    assert findings(document) == []
    del document["staticResources"]["listeners"][0]["perConnectionBufferLimitBytes"]
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps(document))
    ran = doctor(file, **ENVIRON)
    assert ran.returncode == 1
    assert ran.stdout.startswith("error: staticResources.listeners[0].per_connection_buffer_limit_bytes\n")
    assert "    write: per_connection_buffer_limit_bytes: 16777216\n" in ran.stdout
    assert ran.stdout.endswith(": 1 error, no warnings\n")


def test_a_warning_alone_is_no_failure() -> None:
    ran = doctor(Path("envoy.yaml"))
    assert ran.returncode == 0
    assert "PROVIDER_KEY is not set in this environment" in ran.stdout
    assert ran.stdout.endswith("envoy.yaml: no errors, 1 warning\n")


def test_a_configuration_without_the_filter_is_an_error() -> None:
    document = copy.deepcopy(SHIPPED)
    del ROOTS["hcm"](document)["http_filters"][0]
    [finding] = findings(document)
    assert (finding.severity, finding.where) == ("error", "static_resources")
    assert "nothing is metered" in finding.what


@pytest.mark.parametrize("root", ["listener", "hcm"])
def test_a_part_is_checked_and_the_rest_is_named(root: str) -> None:
    part = ROOTS[root](copy.deepcopy(SHIPPED))
    found, unseen = examine([Node(part)], ENVIRON)
    assert found == []
    assert "the cluster tokengate_quota" in unseen and "stats_config" in unseen
    assert "the overload manager" in unseen and "the runtime" in unseen
    assert ("the listener's buffer limit" in unseen) == (root == "hcm")


def test_an_xds_file_and_several_documents_are_read_together() -> None:
    static = SHIPPED["static_resources"]
    listener = {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", **static["listeners"][0]}
    cluster = {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", **static["clusters"][1]}
    del cluster["circuit_breakers"]
    documents = [Node({"resources": [one]}, f"document[{index}]") for index, one in enumerate([listener, cluster])]
    [finding] = examine(documents, ENVIRON)[0]
    assert finding.where == "document[1].resources[0].circuit_breakers"


def istio(operation: str, **plugin: Any) -> dict[str, Any]:
    wasm = ROOTS["plugin"](copy.deepcopy(SHIPPED)) | plugin
    typed = {
        "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
        "type_url": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
        "value": {"config": wasm},
    }
    discovery = {"config_source": {"ads": {}}, "type_urls": [typed["type_url"]]}
    patches = [
        {"applyTo": "HTTP_FILTER", "match": {"context": "GATEWAY"}, "patch": {
            "operation": operation, "value": {"name": "tokengate", "config_discovery": discovery}}},
        {"applyTo": "EXTENSION_CONFIG", "patch": {
            "operation": "ADD", "value": {"name": "tokengate", "typed_config": typed}}},
    ]  # fmt: skip
    return {"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "spec": {"configPatches": patches}}


def test_an_istio_patch_is_checked() -> None:
    found, unseen = examine([Node(istio("INSERT_BEFORE"))], ENVIRON)
    assert found == []
    assert "routes" in unseen and "the connection manager" in unseen
    place, flag = findings(istio("ADD", allow_on_headers_stop_iteration=False))
    assert place.where == "spec.configPatches[0].patch.operation" and "INSERT_BEFORE" in place.instead
    assert flag.where.startswith("spec.configPatches[1].") and "hangs" in flag.what


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"static_resources: [", "neither YAML nor JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"", "no Envoy configuration"),
        (b"just text", "no Envoy configuration"),
        (b"- a list", "no Envoy configuration"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: "bytes | None", why: str) -> None:
    file = tmp_path / "envoy.yaml"
    if content is not None:
        file.write_bytes(content)
    ran = doctor(Path("envoy.yaml"), file, **ENVIRON)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"{file}: cannot be read: ") and why in ran.stderr
    assert ran.stdout == "envoy.yaml: no errors, no warnings\n"


@pytest.mark.parametrize("wrong", [None, 1, "text", [], {}, [None], [{}], [1]], ids=repr)
@pytest.mark.parametrize("root", ["bootstrap", "listener", "hcm", "entry", "route", "plugin", "quota"])
def test_values_of_another_type_never_break_it(root: str, wrong: Any) -> None:
    for key in list(ROOTS[root](SHIPPED)):
        document = copy.deepcopy(SHIPPED)
        ROOTS[root](document)[key] = wrong
        findings(document)


def test_the_known_keys_are_those_of_the_readme() -> None:
    section = (places.ROOT / "README.md").read_text().split("## The filter's configuration")[1]
    documented = json.loads(section.split("```json")[1].split("```")[0])
    assert settings.problems(documented) == []
    assert set(documented) == set(settings.KEYS)
    for name, members in settings.KEYS.items():
        if isinstance(members, dict):
            assert set(documented[name]) == set(members), name
