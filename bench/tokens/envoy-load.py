#!/usr/bin/env python3
"""How long Envoy takes to load a filter, by the times in its own log: envoy-load.py WASM…       (WORKERS=, ROUNDS=)

The first VM compiles the module; each of the others, one for the main thread and one per worker, gets what was
compiled. The filters take turns. Needs what the end-to-end tests need: `make e2e` builds it.
"""

import os
import re
import sys
import tempfile
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness.envoy import Envoy  # noqa: E402
from harness.policy import MODELS  # noqa: E402
from harness.quota import FakeQuota  # noqa: E402

WORKERS = int(os.environ.get("WORKERS", 2))
ROUNDS = int(os.environ.get("ROUNDS", 5))
LINE = re.compile(r"^\[([\d-]+ [\d:.]+)\]\[(\d+)\]\[\w+\]\[wasm\] \[[^]]+\] (.*)")


def run(wasm: Path) -> str:
    """Envoy's log of a start."""

    def use(config):  # type: ignore[no-untyped-def]
        config.plugin["vm_config"]["code"] = {"local": {"filename": str(wasm)}}

    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        quota = FakeQuota(MODELS)
        closing.callback(quota.stop)
        envoy = Envoy(folder, 1, quota.port, {}, WORKERS, use, ("--component-log-level", "wasm:trace"))
        closing.callback(envoy.stop)
        envoy.wait_for_models()
        return envoy.output()


def times(log: str) -> tuple[float, list[float]]:
    """Milliseconds until the module was compiled, and until each further VM was configured."""
    compiled, others = 0.0, []
    began: dict[str, datetime] = {}
    base = None
    for line in log.splitlines():
        if not (found := LINE.match(line)):
            continue
        at, thread, said = datetime.fromisoformat(found[1]), found[2], found[3]
        if said.startswith("Base Wasm created"):
            base = at
        elif base and said == "[host->vm] _initialize()":
            compiled, base = (at - base).total_seconds() * 1000, None
        elif said.startswith("Thread-Local Wasm created"):
            began[thread] = at
        elif said.startswith("[host<-vm] proxy_on_configure return: 1"):
            others.append((at - began.pop(thread)).total_seconds() * 1000)
    assert compiled and len(others) == WORKERS + 2, log[-3000:]
    return compiled, others


def main() -> None:
    modules = [Path(path).resolve() for path in sys.argv[1:]]
    assert modules, __doc__
    seen: dict[Path, list[tuple[float, list[float]]]] = {module: [] for module in modules}
    for _ in range(ROUNDS):
        for module in modules:
            seen[module].append(times(run(module)))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {WORKERS} workers, {ROUNDS} starts")
    print("| filter | MB | compiled, ms: median | most | each further VM, ms: median | most |\n|---|---|---|---|---|---|")
    for module, rounds in seen.items():
        compiled = [first for first, _ in rounds]
        others = [other for _, more in rounds for other in more]
        numbers = [median(compiled), max(compiled), median(others), max(others)]
        name = f"{module.parent.name}/{module.name}"
        print(f"| {name} | {module.stat().st_size / 1e6:.1f} | {' | '.join(f'{n:.0f}' for n in numbers)} |")


if __name__ == "__main__":
    main()
