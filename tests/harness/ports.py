"""Free TCP ports for programs that cannot be told to pick one themselves."""

import itertools
import os
import socket

# Below Linux's ephemeral range, so that no outgoing connection takes a port between choosing and listening.
# Each process draws from a slice of its own: parallel workers have neighbouring process ids.
_FIRST, _SLICE, _SLICES = 12_000, 500, 40
_start = _FIRST + (os.getpid() % _SLICES) * _SLICE
_next = itertools.cycle(range(_start, _start + _SLICE))


def free_port() -> int:
    for port in itertools.islice(_next, _SLICE):
        with socket.socket() as probe:
            # A listener without SO_REUSEADDR would be refused a port in TIME_WAIT; ask for the same.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def accepts(port: int) -> bool:
    """Whether something listens on `port`."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
