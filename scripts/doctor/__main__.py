"""Checks Envoy configurations for what tokengate needs: `make doctor`, or `.venv/bin/python scripts/doctor FILE…`."""

import sys
from pathlib import Path

# Run as a folder; the modules are a package.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from doctor.cli import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
