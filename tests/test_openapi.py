"""The service answers on both ports as its own document says, whatever is sent: schemathesis, with all its checks."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.policy import Policy
from harness.service import Service, quota_service

FILTERS = "/v1/(models|identify|reserve|settle|extend)"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("openapi")
    with quota_service(Policy(), folder) as service:
        yield service


@pytest.mark.parametrize("port", ["filters", "operators"])
def test_what_is_sent_and_answered_is_as_described(service: Service, port: str, tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    with urllib.request.urlopen(f"http://127.0.0.1:{service.admin_port}/openapi.json", timeout=10) as answer:
        described = json.load(answer)
    document.write_text(json.dumps(described))
    number, which = (service.port, "include") if port == "filters" else (service.admin_port, "exclude")
    command = [
        str(Path(sys.executable).with_name("st")), "run", str(document),
        "--url", f"http://127.0.0.1:{number}", f"--{which}-path-regex", f"^{FILTERS}$",
        "--checks", "all", "--mode", "all", "--generation-deterministic", "--max-examples", "20",
        "--workers", "1", "--continue-on-failure", "--no-color", "--warnings", "off",
    ]  # fmt: skip
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout[-20_000:] + found.stderr
    # Nothing was passed over.
    operations = sum(
        len(item.keys() - {"servers"})
        for path, item in described["paths"].items()
        if (re.fullmatch(FILTERS, path) is not None) == (port == "filters")
    )
    assert f"Tested: {operations}\n" in found.stdout, found.stdout[-5_000:]
