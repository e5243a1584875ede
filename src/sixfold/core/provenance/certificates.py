"""Certificates for C2PA manifests: creation of a new chain, and the check of a configured one."""

from __future__ import annotations

import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# C2PA's names of the algorithms, by the size of the elliptic curve.
_BY_CURVE_BITS: Final = {256: "es256", 384: "es384", 521: "es512"}
_MAX_NAME_CHARS = 64
_MAX_DAYS = 3650
# The clocks of readers may be slow.
_BEFORE = datetime.timedelta(minutes=10)


class InvalidCertificate(ValueError):
    """A certificate or its key cannot be used; the message states the reason."""


def create(name: str, days: int) -> tuple[bytes, bytes]:
    """Create a signing certificate and its root; return both certificates and the key as PEM.

    The root's key is discarded, so that it cannot issue further certificates.
    """
    if not 1 <= len(name) <= _MAX_NAME_CHARS or not name.isprintable():
        raise InvalidCertificate(f"the name must have 1 to {_MAX_NAME_CHARS} printable characters")
    if not 1 <= days <= _MAX_DAYS:
        raise InvalidCertificate(f"days must be from 1 to {_MAX_DAYS} (got {days})")
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name, leaf_name = _name(name, "C2PA root"), _name(name, "C2PA signing")
    root = _builder(root_name, root_name, root_key.public_key(), days)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(_usage(is_root=True), critical=True)
    leaf = _builder(leaf_name, root_name, key.public_key(), days)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(_usage(is_root=False), critical=True)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.EMAIL_PROTECTION]), critical=False)
    leaf = leaf.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False
    )
    chain = [builder.sign(root_key, hashes.SHA256()) for builder in (leaf, root)]
    certificates = b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain)
    return certificates, key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def algorithm(certificates: bytes, key: bytes) -> str:
    """Return C2PA's name of a key's algorithm; raises `InvalidCertificate` if the pair is unusable."""
    try:
        leaf = x509.load_pem_x509_certificates(certificates)[0]
    except ValueError as error:
        raise InvalidCertificate("the certificate file must contain certificates as PEM") from error
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError) as error:
        raise InvalidCertificate(
            "the key file must contain a private key as PEM, without a password"
        ) from error
    encoding = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*encoding) != leaf.public_key().public_bytes(*encoding):
        raise InvalidCertificate("the key does not belong to the first certificate of the certificate file")
    ends = leaf.not_valid_after_utc
    if ends < datetime.datetime.now(datetime.UTC):
        raise InvalidCertificate(f"the certificate expired on {ends:%Y-%m-%d}")
    if isinstance(private, ec.EllipticCurvePrivateKey) and private.key_size in _BY_CURVE_BITS:
        return _BY_CURVE_BITS[private.key_size]
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return "ed25519"
    raise InvalidCertificate("the key must be an ECDSA key (P-256, P-384 or P-521) or an Ed25519 key")


def _name(organization: str, common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    start = datetime.datetime.now(datetime.UTC) - _BEFORE
    builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + datetime.timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _usage(*, is_root: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_root,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_root,
        crl_sign=is_root,
        encipher_only=False,
        decipher_only=False,
    )
