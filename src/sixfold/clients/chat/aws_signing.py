"""AWS Signature Version 4, for requests to Amazon Bedrock.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html. botocore
contains a signer too, but its size is 31 MB.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

_ALGORITHM = "AWS4-HMAC-SHA256"
# Characters that are not escaped, besides letters and digits.
_UNRESERVED = "-_.~"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """An access key, with the session token of temporary credentials."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


class SigningScope(msgspec.Struct, frozen=True):
    """The service and region that a signature is valid for."""

    service: str
    region: str


def parse_keys(text: str) -> AwsKeys | None:
    """Parse `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, which may end with `:SESSION_TOKEN`; None for other text."""
    parts = text.split(":", 2)
    return AwsKeys(*parts) if len(parts) > 1 and all(parts[:2]) else None


def sign(
    keys: AwsKeys,
    scope: SigningScope,
    now: datetime,
    request: tuple[str, str, bytes],
    headers: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the headers to send with a request (method, URL, body), the given `headers` among them.

    The path of the URL must be escaped; it is escaped again for the signature, as AWS requires of all
    services but S3.
    """
    method, url, body = request
    parts = urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    signed_headers = {**(headers or {}), "X-Amz-Date": stamp}
    if keys.session_token:
        signed_headers["X-Amz-Security-Token"] = keys.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in signed_headers.items()} | {
        "host": parts.netloc
    }
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/" + _UNRESERVED),
            _canonical_query(parts.query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    credential = f"{stamp[:8]}/{scope.region}/{scope.service}/aws4_request"
    to_sign = "\n".join((_ALGORITHM, stamp, credential, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret_access_key}".encode()
    for part in credential.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"{keys.access_key_id}/{credential}"
    authorization = f"Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return {**signed_headers, "Authorization": f"{_ALGORITHM} {authorization}"}


def _canonical_query(query: str) -> str:
    pairs = parse_qsl(query, keep_blank_values=True)
    return "&".join(
        sorted(f"{quote(name, safe=_UNRESERVED)}={quote(value, safe=_UNRESERVED)}" for name, value in pairs)
    )
