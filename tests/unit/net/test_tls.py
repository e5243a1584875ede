"""Pinned address and verified name together, on a real TLS handshake."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sixfold.errors import FetchFailed, FetchRefused
from sixfold.net.addresses import AllowList
from sixfold.net.fetch import Fetcher
from tests.unit.net.servers import redirect, reply, serving

NAME = "pinned.test"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a self-signed certificate for `pinned.test`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "pinned.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + built.public_bytes(pem)
    )
    return path


async def lookup(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_tls_verifies_the_name_with_a_pinned_address(certificate: Path) -> None:
    greeted: list[str | None] = []
    serving_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_tls.load_cert_chain(certificate)
    serving_tls.sni_callback = lambda _, name, __: greeted.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate))
    fetcher = Fetcher(AllowList.parse("127.0.0.0/8"), lookup=lookup, tls=trusting)
    async with serving(routes={"/": reply(b"secret")}, tls=serving_tls) as server:
        good = server.url(host=NAME, scheme="https")
        actual = await fetcher.fetch(good, max_bytes=100, timeout_seconds=60)
        assert actual.body == b"secret"
        assert greeted == [NAME]
        assert server.requests[0].headers["host"] == f"{NAME}:{server.port}"
        other = server.url(host="other.test", scheme="https")
        with pytest.raises(FetchFailed, match="does not have a valid certificate"):
            await fetcher.fetch(other, max_bytes=100, timeout_seconds=60)
        other_account = Fetcher(AllowList.parse("127.0.0.0/8"), lookup=lookup)
        with pytest.raises(FetchFailed, match="does not have a valid certificate"):
            await other_account.fetch(good, max_bytes=100, timeout_seconds=60)
        server.routes["/down"] = redirect(f"http://{NAME}:{server.port}/")
        with pytest.raises(FetchRefused, match="from https to http"):
            await fetcher.fetch(good + "down", max_bytes=100, timeout_seconds=60)
