"""What callers see of a Redis whose connections break, and of a master that is demoted."""

import time
from pathlib import Path

import pytest
from redis import Redis as Client

from harness import chat, http1
from harness.proxy import Proxy
from harness.redis import Redis
from harness.refusals import assert_refused
from harness.stack import Stack, running
from harness.wait import eventually


def test_no_call_is_lost_with_a_connection_to_redis(tmp_path: Path) -> None:
    with running(tmp_path, redis=True) as stack:
        tenant, redis = stack.tenant(), stack.redis
        assert redis
        with Client.from_url(redis.url) as client:
            for _ in range(20):
                client.client_kill_filter(_type="normal", skipme=True)
                assert stack.ask(tenant).status == 200
            # Closed by the server, because nothing was asked on it.
            client.config_set("timeout", 1)
            client.ping()
            eventually(lambda: len(client.client_list()), lambda connections: connections == 1, 20)
            assert stack.ask(tenant).status == 200
        stack.settles_to(tenant, 21 * chat.usage_of(chat.body()).total, 21, timeout=20)


@pytest.mark.parametrize("stale", [True, False], ids=["that answers reads", "that answers nothing"])
def test_a_demoted_master_is_left_for_the_new_one(tmp_path: Path, stale: bool) -> None:
    """Its connections stay open; only the address leads elsewhere."""
    (tmp_path / "new").mkdir()
    new, between = Redis(tmp_path / "new"), list[Proxy]()

    def address(old: Redis) -> str:
        between.append(Proxy(old.port))
        return f"redis://127.0.0.1:{between[0].port}/0"

    try:
        with running(tmp_path, redis=True, redis_url=address) as stack:
            old = stack.redis
            assert old
            with Client.from_url(old.url) as at_old, Client.from_url(new.url) as at_new:
                tenant = stack.tenant()
                at_old.config_set("repl-diskless-sync-delay", 0)
                at_new.replicaof("127.0.0.1", str(old.port))
                eventually(lambda: at_new.info("replication")["master_link_status"], lambda link: link == "up", 20)
                assert stack.ask(tenant).status == 200
                stack.settles_to(tenant, chat.usage_of(chat.body()).total, 1)
                # `WAIT` asks only for what its own connection has written.
                written = at_old.info("replication")["master_repl_offset"]
                eventually(lambda: at_new.info("replication")["slave_repl_offset"], lambda read: read >= written, 20)
                at_new.replicaof("NO", "ONE")
                at_old.config_set("replica-serve-stale-data", "yes" if stale else "no")
                at_old.replicaof("127.0.0.1", str(new.port) if stale else "1")
                for _ in range(3):
                    assert_refused(stack.ask(tenant), 503, "api_error", "quota_unavailable")
                status, reason = eventually(stack.service.readiness, lambda seen: seen[0] == 503)
                assert reason.startswith("replica: "), reason

                between[0].turn_to(new.port)
                turned = time.monotonic()
                eventually(lambda: stack.ask(tenant).status, lambda status: status == 200)
                assert time.monotonic() - turned < 3, "about two seconds, and what a busy machine adds"
                eventually(stack.service.readiness, lambda seen: seen[0] == 200)
                # The counts went along.
                served = len(stack.upstream.requests)
                assert served == 2
                stack.settles_to(tenant, served * chat.usage_of(chat.body()).total, served, timeout=20)
    finally:
        for proxy in between:
            proxy.stop()
        new.stop()


def test_web_pages_reach_neither_port(stack: Stack) -> None:
    """The browser of whoever runs the service sends what a page of any site wants."""
    tenant, service = stack.tenant(), stack.service
    assert stack.ask(tenant).status == 200
    spent = stack.closed_bucket(tenant)
    bucket = {"tenant": tenant.name, "limit": "model-tokens", "model": "gpt-4o"}
    reset = chat.encode({"bucket": bucket})
    here, typed = ("host", f"127.0.0.1:{service.admin_port}"), ("content-type", "application/json")
    for status, headers in [
        (403, [typed, ("origin", "https://attacker.example")]),
        (403, [typed, ("sec-fetch-site", "cross-site")]),
        (415, [("content-type", "text/plain")]),
    ]:
        head = b"POST /v1/buckets/reset HTTP/1.1\r\n" + b"".join(
            f"{name}: {value}\r\n".encode() for name, value in [here, *headers, ("content-length", str(len(reset)))]
        )
        connection = http1.Connection(service.admin_port)
        connection.send(head + b"\r\n" + reset)
        assert connection.response().status == status, headers
        connection.close()
    for port, path in [(service.admin_port, f"/v1/explain?tenant={tenant.name}"), (service.port, "/v1/models")]:
        connection = http1.Connection(port)
        connection.send(f"GET {path} HTTP/1.1\r\nhost: attacker.example\r\n\r\n".encode())
        assert connection.response().status == 403
        connection.close()
    assert stack.closed_bucket(tenant) == spent
