"""Redaction of inline media and credentials in URLs, because manifests are published with the file.

A redacted value becomes a small object: `{"blake3", "bytes"}` (with `"media_type"` for a `data:` URI) or
`{"url", "withheld"}`. `replaced` lists these objects, because a manifest that contains them cannot be
replayed.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import blake3
import msgspec

from sixfold.core.input_limits import percent_encoding
from sixfold.core.provenance import manifest

_encode = msgspec.json.Encoder().encode
MAX_BYTES = 192 * 1024
MAX_DEPTH = 64
_STRING_LIMITS = (16_384, 2_048, 256, 64)
# Maximum length of a URL with non-ASCII characters, whose host `urlsplit` normalizes in quadratic time.
_MAX_URL = 2_048
# Redaction of a value takes about as long as that of so many characters.
_VALUE_SIZE = 16
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
# The path of a file that anyone who knows it can read: a random name, or a path in a random folder.
FILE_PATH = re.compile(
    r"(/media/)[\w-]{16,64}\.[a-z0-9]{1,8}|(/uploads/)[0-9a-f]{32}/[^\s\"'<>\\]*", re.ASCII
)
_DIGEST = frozenset({"blake3", "bytes"})
_SHAPES = (_DIGEST, _DIGEST | {"media_type"}, frozenset({"url", "withheld"}))


def clean(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs for a manifest: JSON of at most 192 KiB, with digests for long values and `data:` URIs.

    User names, passwords and queries, which contain the secrets of signed links, are removed from URLs. If
    the result is too large, shorter and shorter strings are replaced, and finally the whole object.
    """
    clean_fields: dict[str, Any] = {}
    for limit in _STRING_LIMITS:
        clean_fields = {_text(str(name)): _clean(value, limit, MAX_DEPTH) for name, value in inputs.items()}
        # The canonical text is not shorter, and takes much longer to build.
        if (
            len(_encode(clean_fields)) <= MAX_BYTES
            and len(manifest.plain(clean_fields).encode()) <= MAX_BYTES
        ):
            return clean_fields
    return digest(manifest.plain(clean_fields).encode())


def without_file_paths(value: Any) -> Any:
    """Return the inputs of a manifest without paths of files at `/media/` and `/uploads/`.

    Anyone who knows such a path can read the file, and a shared result does not share its inputs. A URL
    becomes `{"url", "withheld"}`, and another text with a path its digest.
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {name: without_file_paths(item) for name, item in items}
    if isinstance(value, list):
        return [without_file_paths(item) for item in cast("list[Any]", value)]
    text = value.strip() if isinstance(value, str) else ""
    found = FILE_PATH.search(text)
    if found is None:
        return value
    if len(text.split()) > 1 or found.end() < len(text):
        return digest(text.encode())
    return {"url": text[: found.start()] + (found[1] or found[2]), "withheld": "name"}


def minimum_size(value: Any, most: int) -> int:
    """Return the characters and values of inputs, of which at most about `most` are counted."""
    size, stack = 0, [value]
    while stack and size < most:
        each = stack.pop()
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, Mapping | Sequence):
            items = cast("Mapping[Any, Any] | Sequence[Any]", each)
            size += _VALUE_SIZE * len(items)
            if size < most:
                stack += items.values() if isinstance(items, Mapping) else items
    return size


def digest(data: bytes, media_type: str | None = None) -> dict[str, Any]:
    """Return the object that replaces bytes in a manifest."""
    result: dict[str, Any] = {"blake3": blake3.blake3(data).hexdigest(), "bytes": len(data)}
    return result if media_type is None else {**result, "media_type": media_type}


def replaced(inputs: Mapping[str, Any]) -> list[str]:
    """Return the paths (`image`, `layers.0.mask`; empty for all) of values that `clean` replaced."""
    return sorted(_replaced(inputs, ""))


def _replaced(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        if frozenset(mapping) in _SHAPES:
            yield path
            return
        pairs: list[tuple[str, Any]] = list(mapping.items())
    elif isinstance(value, list):
        pairs = [(str(index), item) for index, item in enumerate(cast("list[Any]", value))]
    else:
        return
    for name, item in pairs:
        yield from _replaced(item, f"{path}.{name}" if path else name)


def _clean(value: Any, limit: int, depth: int) -> Any:
    if depth == 0:
        return digest(msgspec.json.encode(value, order="sorted", enc_hook=str))
    for kind, handler in _HANDLERS:
        if isinstance(value, kind):
            return handler(value, limit, depth)
    return _string(str(value), limit, depth)


def _plain(value: Any, limit: int, depth: int) -> Any:
    return value


def _integer(value: int, limit: int, depth: int) -> int | str:
    return value if -(2**63) <= value < 2**64 else hex(value)[:limit]


def _number(value: float, limit: int, depth: int) -> float | str:
    return value if math.isfinite(value) else str(value)


def _bytes(value: bytes | bytearray, limit: int, depth: int) -> Any:
    return digest(bytes(value))


def _object(value: Mapping[Any, Any], limit: int, depth: int) -> Any:
    return {_text(str(name)): _clean(item, limit, depth - 1) for name, item in value.items()}


def _array(value: Sequence[Any], limit: int, depth: int) -> Any:
    return [_clean(item, limit, depth - 1) for item in value]


def _string(value: str, limit: int, depth: int) -> Any:
    value = _text(value)
    head = value.lstrip()[:8].lower()
    if head.startswith("data:"):
        return _data_uri(value.strip())
    if len(value) > limit:
        return digest(value.encode())
    if not head.startswith("http") or len(value.split()) != 1:
        return value
    return _url(value) if value.isascii() or len(value) <= _MAX_URL else digest(value.encode())


_Handler = Callable[[Any, int, int], Any]
_HANDLERS: tuple[tuple[type | tuple[type, ...], _Handler], ...] = (
    (str, _string),
    ((bool, type(None)), _plain),
    (int, _integer),
    (float, _number),
    ((bytes, bytearray), _bytes),
    (Mapping, _object),
    (Sequence, _array),
)


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


def _data_uri(value: str) -> dict[str, Any]:
    """Return the digest of a URI's decoded payload, or of the URI itself if the payload is invalid."""
    head, _, payload = value[5:].partition(",")
    media_type, *parameters = head.split(";")
    body = percent_encoding.decode(payload)
    if "base64" in (parameter.strip().lower() for parameter in parameters):
        try:
            body = base64.b64decode(body + b"=" * (-len(body) % 4), validate=False)
        except binascii.Error:
            body = value.encode()
    return digest(body, media_type.lower() if _MEDIA_TYPE.fullmatch(media_type) else "text/plain")


def _url(value: str) -> Any:
    try:
        parts = urlsplit(value)
        secret = parts.username is not None or parts.password is not None
    except ValueError:
        return value
    if parts.scheme not in {"http", "https"} or not (secret or parts.query or parts.fragment):
        return value
    netloc = parts.netloc.rpartition("@")[2]
    return {"url": f"{parts.scheme}://{netloc}{parts.path}", "withheld": "query" if parts.query else "part"}
