"""What a check says: how bad, where, what is wrong, what to write instead."""

from __future__ import annotations

from dataclasses import dataclass

from .node import Node

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Finding:
    severity: str
    where: str
    what: str
    instead: str


def error(where: Node, what: str, instead: str) -> Finding:
    """Requests hang, are cut, go round the filter or are lost, or Envoy does not start."""
    return Finding(ERROR, where.path or "(the file)", what, instead)


def warning(where: Node, what: str, instead: str) -> Finding:
    """It works, with less than it could: money, secrets, readability."""
    return Finding(WARNING, where.path or "(the file)", what, instead)
