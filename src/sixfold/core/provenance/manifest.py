"""Manifests, which state the model, inputs and engine that produced a file.

The text is canonical JSON in UTF-8: sorted keys, no white space, and escapes for the few characters that XML,
ID3 or terminals do not support, so the same text is valid in every container.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold import __version__
from sixfold.core.input_limits import json_decoding

FORMAT = "sixfold-manifest/1"
MAX_TEXT_BYTES = 256 * 1024
MAX_PARENTS = 512

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

_decode = msgspec.json.Decoder(dict[str, Any], float_hook=json_decoding.number).decode


class ManifestTooLarge(ValueError):
    """The manifest's text exceeds 256 KiB; its inputs must be redacted with `redaction.clean`."""


class NotAManifest(ValueError):
    """The text is not a manifest of a known format."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The provenance of one output file.

    `inputs` are the validated inputs after `redaction.clean`. `parents` are at most `MAX_PARENTS` input
    files, each as `blake3:<hex>`. `index` is the number of the output in its prediction, counted from 0.
    """

    model: str
    inputs: dict[str, Any]
    engine: str
    engine_version: str
    quality: str
    prediction_id: str
    index: int = 0
    seed: int | None = None
    parents: tuple[str, ...] = ()
    software: str = f"sixfold {__version__}"


def plain(document: Mapping[str, Any]) -> str:
    """Return the canonical text of a JSON object, without a limit on its length."""
    text = msgspec.json.encode(document, order="sorted").decode()
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def canonical(document: Mapping[str, Any]) -> str:
    """Return the canonical text of a JSON object; raises `ManifestTooLarge` above 256 KiB.

    Raises `TypeError` or `ValueError` for values that JSON cannot represent.
    """
    text = plain(document)
    if (size := len(text.encode())) > MAX_TEXT_BYTES:
        raise ManifestTooLarge(f"a manifest must be at most {MAX_TEXT_BYTES:,} bytes (got {size:,})")
    return text


def document(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as the JSON object that is signed, without key and signature."""
    return {"format": FORMAT, **msgspec.structs.asdict(manifest)}


def parse(text: str) -> tuple[Manifest, dict[str, Any]]:
    """Parse a manifest from any source; return it and its JSON object. Raises `NotAManifest`."""
    if len(text) > MAX_TEXT_BYTES:
        raise NotAManifest(
            f"a manifest must be at most {MAX_TEXT_BYTES // 1024} KiB (got {len(text):,} characters)"
        )
    try:
        document = _decode(text.encode())
        if document.get("format") != FORMAT:
            raise NotAManifest("the text is not a manifest of a known format")
        return msgspec.convert(document, Manifest), document
    except (msgspec.MsgspecError, UnicodeEncodeError, ValueError, RecursionError) as error:
        raise NotAManifest("the text is not a manifest") from error
