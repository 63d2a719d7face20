"""Token counts made independently of the filter: tiktoken-rs and tiktoken as a native program, chat framing in Python.

Framing: openai-cookbook, "How to count tokens with tiktoken": 3 per message, 1 per name, 3 for the reply.
"""

import json
import subprocess
import threading
from functools import lru_cache
from typing import Any

from . import places

ENCODINGS = {"gpt-4o": "o200k_base", "gpt-4": "cl100k_base"}

_PER_MESSAGE, _PER_NAME, _PER_REPLY = 3, 1, 3


class Oracle:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child = subprocess.Popen(
            [str(places.oracle())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def text(self, text: str, model: str = "gpt-4o") -> int:
        """By the model's encoding, or by the one that is named instead."""
        assert self._child.stdin and self._child.stdout
        line = json.dumps({"encoding": ENCODINGS.get(model, model), "text": text})
        with self._lock:
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()
            return int(self._child.stdout.readline())

    def prompt(self, messages: list[dict[str, Any]], model: str = "gpt-4o") -> int:
        """Tokens of chat messages whose contents are plain strings."""
        total = _PER_REPLY
        for message in messages:
            total += _PER_MESSAGE + (_PER_NAME if "name" in message else 0)
            total += sum(self.text(message[part], model) for part in ("role", "content", "name") if part in message)
        return total


@lru_cache(maxsize=1)
def oracle() -> Oracle:
    """One per test process; it ends with its standard input."""
    return Oracle()
