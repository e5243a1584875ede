"""Signing and checking of C2PA manifests with c2pa-python, which is imported only when needed.

Time stamps, revocation lists and remote manifests are not fetched.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, BinaryIO, Literal

import c2pa

from sixfold.core.provenance import certificates
from sixfold.core.provenance.certificates import InvalidCertificate
from sixfold.core.provenance.content_credentials import SigningFailed

_SETTINGS = {
    # A thumbnail would repeat the file's content, and can be larger than the file.
    "builder": {"thumbnail": {"enabled": False}},
    "verify": {"remote_manifest_fetch": False, "ocsp_fetch": False},
}
_ABOUT_TIME_AND_TRUST = frozenset({"signingCredential.expired", "signingCredential.untrusted"})
# A GIF of one pixel, to test a certificate.
_PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")
_CREATED = "http://cv.iptc.org/newscodes/digitalsourcetype/algorithmicMedia"
_TEST = {
    "claim_generator_info": [{"name": "Sixfold"}],
    "assertions": [
        {
            "label": "c2pa.actions.v2",
            "data": {"actions": [{"action": "c2pa.created", "digitalSourceType": _CREATED}]},
        }
    ],
}


def check(file: BinaryIO, media_type: str) -> Literal["none", "valid", "expired", "invalid"]:
    """Return whether a file has a C2PA manifest, and whether the file is unchanged since it was signed.

    Without a time stamp, it is unknown whether the file was signed before an `expired` certificate expired.
    """
    try:
        with c2pa.Context(c2pa.Settings.from_dict(_SETTINGS)) as context:
            reader = c2pa.Reader.try_create(media_type, file, context=context)
            if reader is None:
                return "none"
            with reader:
                return verdict(json.loads(reader.json()))
    except c2pa.C2paError:
        return "invalid"


def verdict(report: dict[str, Any]) -> Literal["valid", "expired", "invalid"]:
    if report.get("validation_state") in ("Valid", "Trusted"):
        return "valid"
    codes = {str(each["code"]) for each in report.get("validation_status", ())}
    return "expired" if codes and codes <= _ABOUT_TIME_AND_TRUST else "invalid"


class C2paSigner:
    """A signer with a certificate chain and its key, both as PEM; raises `InvalidCertificate`."""

    def __init__(self, chain: bytes, key: bytes) -> None:
        self._algorithm = certificates.algorithm(chain, key)
        self._chain = chain
        self._key = key
        try:
            self(BytesIO(_PIXEL), BytesIO(), "image/gif", _TEST)
        except SigningFailed as error:
            raise InvalidCertificate(f"the C2PA library does not accept it: {error}") from error

    def __call__(
        self, source: BinaryIO, target: BinaryIO, media_type: str, definition: dict[str, Any]
    ) -> None:
        """Write the file with a C2PA manifest to `target`; raises `SigningFailed`."""
        info = c2pa.C2paSignerInfo(self._algorithm, self._chain, self._key, None)
        try:
            with (
                c2pa.Context(c2pa.Settings.from_dict(_SETTINGS)) as context,
                c2pa.Signer.from_info(info) as signer,
                c2pa.Builder(definition, context) as builder,
            ):
                builder.sign(signer, media_type, source, target)
        except c2pa.C2paError as error:
            raise SigningFailed(str(error)) from error
