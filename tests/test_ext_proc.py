"""Beside Envoy's ext_proc filter in full duplex, before ours and behind it: every byte of a body arrives."""

from collections.abc import Iterator

import pytest

from harness import chat, http2
from harness.envoy import Config
from harness.ext_proc import ExtProc
from harness.policy import Tenant
from harness.routes import Edit, connection_manager
from harness.stack import Stack, running

SIZES = [1, 16_384, 65_536, 1 << 20]


def beside(processor: ExtProc, behind: bool) -> Edit:
    def edit(config: Config) -> None:
        filters = connection_manager(config)["http_filters"]
        names = [entry["name"] for entry in filters]
        filters.insert(
            names.index("envoy.filters.http.router") if behind else names.index("tokengate"),
            {
                "name": "ext_proc",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
                    "grpc_service": {"envoy_grpc": {"cluster_name": "ext_proc"}, "timeout": "10s"},
                    "processing_mode": {
                        "request_header_mode": "SEND",
                        "request_body_mode": "FULL_DUPLEX_STREAMED",
                        "request_trailer_mode": "SEND",
                        "response_header_mode": "SEND",
                        "response_body_mode": "FULL_DUPLEX_STREAMED",
                        "response_trailer_mode": "SEND",
                    },
                    "message_timeout": "10s",
                },
            },
        )
        endpoint = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": processor.port}}}
        config.document["static_resources"]["clusters"].append(
            {
                "name": "ext_proc",
                "type": "STATIC",
                "connect_timeout": "1s",
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                        "explicit_http_config": {"http2_protocol_options": {}},
                    }
                },
                "load_assignment": {
                    "cluster_name": "ext_proc",
                    "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
                },
            }
        )

    return edit


@pytest.fixture(scope="module")
def processor() -> Iterator[ExtProc]:
    processor = ExtProc()
    yield processor
    processor.stop()


@pytest.fixture(scope="module", params=["before", "behind"])
def shared_stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, processor: ExtProc
) -> Iterator[Stack]:
    edit = beside(processor, behind=request.param == "behind")
    with running(tmp_path_factory.mktemp("ext-proc"), edit=edit) as stack:
        yield stack


def padded(size: int, **members: object) -> bytes:
    """A body of at least this size that nothing in it repeats."""
    text = "".join(f"{n:x} " for n in range(size))[:size]
    return chat.encode(chat.body(messages=[{"role": "user", "content": text}], **members))


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_arrives(stack: Stack, tenant: Tenant, processor: ExtProc, size: int) -> None:
    processor.request_pieces.clear()
    body = padded(size)
    assert stack.post([tenant.bearer], body).status == 200
    assert stack.upstream.only_request().body == body
    assert b"".join(processor.request_pieces) == body
    assert stack.closed_bucket(tenant).requests == 1


@pytest.mark.parametrize("size", SIZES)
def test_a_rewritten_body_arrives(stack: Stack, tenant: Tenant, size: int) -> None:
    body = padded(size, stream=True)
    response = stack.post([tenant.bearer], body)
    assert response.status == 200
    assert b'"choices":[]' not in response.body.replace(b" ", b"")
    expected = body.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    assert stack.upstream.only_request().body == expected
    assert stack.closed_bucket(tenant).requests == 1


def test_over_http2_in_pieces(stack: Stack, tenant: Tenant) -> None:
    body = padded(65_536, stream=True)
    pieces = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    assert http2.request(stack.envoy.port, [tenant.bearer], pieces, chat.PATH).status == 200
    expected = body.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    assert stack.upstream.only_request().body == expected


def test_a_refused_request_reaches_nobody(stack: Stack) -> None:
    assert stack.post([stack.tenant("tiny").bearer], padded(65_536)).status == 429
    assert stack.upstream.requests == []
