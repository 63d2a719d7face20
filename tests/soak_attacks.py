"""What the attackers of the soak do, each in a process of its own: bounded in number and in time, to loopback only. They
yield the processor to the gateway, for real ones have machines of their own."""

import gzip
import itertools
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from harness import chat, h2_flood, http1

# The provider's script knows by this what to send to an attacker whom the policy knows.
MARK = "x-attack"
STRANGER = ("authorization", "Bearer made-up-{}")
# So much white space fits into a body of 8 MiB, and packs into 8 kB.
BOMB = gzip.compress(b'{"model":"gpt-4o","messages":[' + b" " * (8 << 20) + b"]}")
UNFINISHED_BYTES = (8 << 20) - (64 << 10)
# Of the largest 20,000 were seen in 2.5 s; on one connection Envoy ends them much sooner.
RESETS_A_CONNECTION, RESETS_A_SECOND = 400, 2_000
BOMBS_A_SECOND, DIGESTS_A_SECOND = 4, 10
UNFINISHED, SLOW_READERS = 24, 24
# What any of them does at the most, whatever time it has.
AT_MOST = 200_000


@dataclass(frozen=True)
class Target:
    port: int
    # Callers whom the policy knows: who pays may attack too.
    known: tuple[tuple[str, str], ...]
    until: float

    def left(self) -> float:
        return self.until - time.monotonic()


Attack = Callable[[Target], Counter[str]]
Did = tuple[str, Counter[str]]


def _stranger() -> tuple[str, str]:
    return STRANGER[0], STRANGER[1].format(random.randrange(1 << 40))


def _paced(target: Target, each_s: float) -> Iterator[int]:
    """Beats at this distance until the time is over."""
    first = time.monotonic()
    for number in itertools.takewhile(lambda _: target.left() > 0, range(AT_MOST)):
        yield number
        time.sleep(max(0.0, min(first + (number + 1) * each_s - time.monotonic(), target.left())))


def resets(target: Target) -> Counter[str]:
    """Whole requests over HTTP/2, each reset right behind its last byte, on ever new connections."""
    done: Counter[str] = Counter()
    body = chat.encode(chat.body())
    for _ in _paced(target, RESETS_A_CONNECTION / RESETS_A_SECOND):
        client = h2_flood.connect(target.port)
        try:
            headers = h2_flood.block(chat.PATH, [_stranger()])
            client.sendall(h2_flood.requests(0, RESETS_A_CONNECTION, headers, body))
            done["sent"] += RESETS_A_CONNECTION
        except OSError:
            done["connections closed while sending"] += 1
        finally:
            client.close()
    return done


def bombs(target: Target) -> Counter[str]:
    """Small bodies that inflate to as much as is allowed, of nobody."""
    done: Counter[str] = Counter()
    open_: list[http1.Connection] = []
    for _ in _paced(target, 1 / BOMBS_A_SECOND):
        client = http1.Connection(target.port)
        client.send(http1.encode("POST", chat.PATH, [_stranger(), ("content-encoding", "gzip")], BOMB))
        open_.append(client)
        done["sent"] += 1
    for client in open_:
        done[_status(client)] += 1
    return done


def digests(target: Target) -> Counter[str]:
    """A digest that is none: nobody checks it, and it forbids to change the body."""
    done: Counter[str] = Counter()
    body = chat.encode(chat.body(stream=True))
    for number in _paced(target, 1 / DIGESTS_A_SECOND):
        client = http1.Connection(target.port)
        known = target.known[number % len(target.known)]
        headers = [known, (MARK, "short"), ("content-digest", "sha-256=:AA==:"), ("connection", "close")]
        client.send(http1.encode("POST", chat.PATH, headers, body))
        done[_status(client)] += 1
    return done


def unfinished(target: Target) -> Counter[str]:
    """Large bodies whose last bytes never come, of nobody."""
    done: Counter[str] = Counter()
    open_: list[http1.Connection] = []
    length = ("content-length", str(8 << 20))
    for _ in range(UNFINISHED):
        client = http1.Connection(target.port)
        try:
            client.send(http1.encode("POST", chat.PATH, [_stranger(), length], b"", length=False))
            client.send(b" " * UNFINISHED_BYTES)
            done["begun"] += 1
        except (OSError, AssertionError):
            done["refused while sending"] += 1
        open_.append(client)
    time.sleep(max(0.0, target.left()))
    for client in open_:
        client.abort()
    return done


def slow_readers(target: Target) -> Counter[str]:
    """Callers whom the policy knows, who ask for long answers and do not read them."""
    done: Counter[str] = Counter()
    body = chat.encode(chat.body(stream=True))
    open_ = []
    for number in range(SLOW_READERS):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", target.port))
        client.sendall(http1.encode("POST", chat.PATH, [target.known[number % len(target.known)], (MARK, "long")], body))
        open_.append(client)
        done["begun"] += 1
    time.sleep(max(0.0, target.left()))
    for client in open_:
        client.close()
    return done


def _status(client: http1.Connection) -> str:
    try:
        return str(client.response().status)
    except (OSError, ValueError):
        return "no answer"
    finally:
        client.close()


ATTACKS: tuple[Attack, ...] = (resets, bombs, digests, unfinished, slow_readers)


def run(attack: Attack, port: int, known: tuple[tuple[str, str], ...], seconds: float, begin: Barrier, done: "Queue[Did]") -> None:
    """All begin together, when the last of them has come up."""
    os.nice(10)
    begin.wait()
    try:
        did = attack(Target(port, known, time.monotonic() + seconds))
    except OSError as error:
        # The gateway may defend itself; that is no fault.
        did = Counter({f"ended by {type(error).__name__}": 1})
    done.put((attack.__name__, did))
