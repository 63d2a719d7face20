"""Reads the files, prints what was found, decides the exit status."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .checks import examine
from .finding import ERROR, WARNING
from .node import Unreadable, read

FINE, ERRORS, UNREADABLE = 0, 1, 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/doctor",
        description="Checks Envoy configurations for what tokengate needs.",
        epilog="Exit status: 0 without errors, 1 with errors, 2 when a file cannot be read.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a bootstrap, or a part of one")
    return max(_check(file) for file in parser.parse_args(arguments).files)


def _check(file: Path) -> int:
    try:
        findings, unseen = examine(read(file), os.environ)
    except Unreadable as why:
        print(f"{file}: cannot be read: {why}", file=sys.stderr)
        return UNREADABLE
    for finding in findings:
        print(f"{finding.severity}: {finding.where}\n    {finding.what}\n    write: {finding.instead}")
    if unseen:
        print(f"{file}: not in this file, so not checked: {', '.join(unseen)}")
    counts = [sum(one.severity == severity for one in findings) for severity in (ERROR, WARNING)]
    print(f"{file}: {_plural(counts[0], ERROR)}, {_plural(counts[1], WARNING)}")
    return ERRORS if counts[0] else FINE


def _plural(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
