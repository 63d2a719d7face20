"""Callers by the certificate that they present, on a listener that verifies it."""

import datetime
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from harness import chat
from harness.envoy import Config
from harness.http1 import Response
from harness.policy import Plan, Policy
from harness.refusals import assert_refused
from harness.stack import Stack, running
from harness.wait import becomes

CALLER = "spiffe://clients.test/acme"


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._sign(self._name, self._key, constraints)
        self.path = folder / "authority.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, uri: str | None = None) -> tuple[Path, Path]:
        """The files of a chain and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)] if uri else [x509.DNSName(name)]
        certificate = self._sign(subject, key, x509.SubjectAlternativeName(names))
        chain, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encoding, shape = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        secret.write_bytes(key.private_bytes(encoding, shape, serialization.NoEncryption()))
        return chain, secret

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: Any) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        return builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def accepting(document: dict[str, Any]) -> None:
    document["verified_identities"] = {"accept": True, "default_plan": "roomy"}


@pytest.fixture(scope="module")
def shared_stack(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    chain, key = authority.issue("gate.test")

    def verifying(config: Config) -> None:
        context = {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "require_client_certificate": True,
            "common_tls_context": {
                "tls_certificates": [{"certificate_chain": {"filename": str(chain)}, "private_key": {"filename": str(key)}}],
                "validation_context": {"trusted_ca": {"filename": str(authority.path)}},
            },
        }
        socket = {"name": "envoy.transport_sockets.tls", "typed_config": context}
        config.listener["filter_chains"][0]["transport_socket"] = socket

    plugin = {"identity": {"sources": [{"mtls": {"tenant": "uri_san"}}]}}
    policy = Policy({"roomy": Plan()}, accepting)
    with running(tmp_path_factory.mktemp("stack"), plugin, policy=policy, edit=verifying) as stack:
        yield stack


def ask(stack: Stack, authority: Authority, certificate: tuple[Path, Path] | None) -> Response:
    context = ssl.create_default_context(cafile=str(authority.path))
    context.check_hostname = False
    if certificate:
        context.load_cert_chain(*certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", stack.envoy.port, context=context, timeout=10)
    try:
        connection.request("POST", chat.PATH, chat.encode(chat.body()), {"x-tokengate-tenant": "somebody-else"})
        answer = connection.getresponse()
        return Response(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


def test_the_certificate_names_the_tenant(stack: Stack, authority: Authority) -> None:
    assert ask(stack, authority, authority.issue("acme", CALLER)).status == 200
    used = chat.usage_of(chat.body()).total

    def charged() -> int:
        limits = stack.service.explain(CALLER, "gpt-4o", plan="roomy")["limits"]
        return int({limit["name"]: limit["used"] for limit in limits}["model-tokens"])

    becomes(charged, used)


def test_a_certificate_without_the_name_is_nobodys(stack: Stack, authority: Authority) -> None:
    response = ask(stack, authority, authority.issue("plain.test"))
    assert_refused(response, 401, "authentication_error", "missing_identity")


def test_without_one_there_is_no_connection(stack: Stack, authority: Authority) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(stack, authority, None)
    assert stack.upstream.requests == []
