"""One place of a configuration file: a value, and the path that leads to it. Never fails on a value of the wrong
type, which is Envoy's to refuse; it only looks absent then."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import yaml

_DURATION = re.compile(r"(\d+(?:\.\d{1,9})?)s")


class Unreadable(Exception):
    """The file is no configuration that can be looked at; the message says why."""


@dataclass(frozen=True)
class Node:
    value: Any
    path: str = ""

    def __bool__(self) -> bool:
        """Set, be it to `{}` or `false`; null is how protobuf's JSON writes absent."""
        return self.value is not None

    def __getitem__(self, name: str) -> Node:
        """A member by its name in the API, which a file may spell `in_snake_case` or `inCamelCase`."""
        spelled = name
        value = None
        if isinstance(self.value, dict):
            camel = re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)
            spelled = name if name in self.value or camel not in self.value else camel
            value = self.value.get(spelled)
        return Node(value, f"{self.path}.{spelled}" if self.path else spelled)

    def at(self, *names: str) -> Node:
        node = self
        for name in names:
            node = node[name]
        return node

    def items(self) -> list[Node]:
        values = self.value if isinstance(self.value, list) else []
        return [Node(value, f"{self.path}[{index}]") for index, value in enumerate(values)]

    def members(self) -> list[tuple[str, Node]]:
        members = self.value if isinstance(self.value, dict) else {}
        return [(str(name), Node(value, f"{self.path}.{name}")) for name, value in members.items()]

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for child in self.items() + [member for _, member in self.members()]:
            yield from child.walk()

    def texts(self) -> Iterator[Node]:
        return (node for node in self.walk() if isinstance(node.value, str))

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else ""

    def is_true(self) -> bool:
        return self.value is True

    def number(self) -> Optional[int]:
        """A whole number; protobuf's JSON may quote it."""
        if isinstance(self.value, bool):
            return None
        try:
            return int(self.value)
        except (TypeError, ValueError, OverflowError):
            return None

    def seconds(self) -> Optional[float]:
        """A duration as Envoy reads it: `0s`, `0.25s`; nothing else is one."""
        match = _DURATION.fullmatch(self.text())
        return float(match[1]) if match else None

    def is_type(self, message: str) -> bool:
        """Whether this is an Any with that message, by the last part of its name."""
        return type_of(self).endswith(f".{message}")

    def message(self) -> Node:
        """What an Any holds; Istio's users often write it as a TypedStruct."""
        return self["value"] if self["@type"].text().endswith(".TypedStruct") else self


def type_of(node: Node) -> str:
    name = node["@type"].text()
    return node["type_url"].text() if name.endswith(".TypedStruct") else name


def read(file: Path) -> list[Node]:
    """The documents of a YAML or JSON file, which is YAML too."""
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise Unreadable("it is not UTF-8 text") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(f"it is neither YAML nor JSON: {error}") from error
    documents = [document for document in documents if document is not None]
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise Unreadable("it holds no Envoy configuration: a mapping with static_resources is expected")
    if len(documents) == 1:
        return [Node(documents[0])]
    return [Node(document, f"document[{index}]") for index, document in enumerate(documents)]
