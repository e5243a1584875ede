"""A manifest: which model made this file, from which inputs, with which engine.

Its text is canonical JSON: keys sorted, no white space, UTF-8, and the few characters that XML, ID3
or a terminal would not carry are written as escapes, so that one text fits every container.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold import __version__
from sixfold.core import json_decoding

FORMAT = "sixfold-manifest/1"
MAX_TEXT_BYTES = 256 * 1024
MAX_PARENTS = 512

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

_decode = msgspec.json.Decoder(dict[str, Any], float_hook=json_decoding.number).decode


class ManifestTooLarge(ValueError):
    """The manifest's text is over 256 KiB; its inputs have to pass through `inputs.clean` first."""


class NotAManifest(ValueError):
    """The text is not a manifest of a format that is known here."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one output says of its origin.

    `inputs` are the checked inputs after `inputs.clean`; `parents` are the contents that went in, each
    `blake3:<hex>` and at most `MAX_PARENTS`; `index` counts the outputs of the prediction from 0.
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
    """Write a JSON object in the form that is signed, however long it is."""
    text = msgspec.json.encode(document, order="sorted").decode()
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def canonical(document: Mapping[str, Any]) -> str:
    """Write a JSON object in the one form that is signed; `ManifestTooLarge` over 256 KiB.

    Raises `TypeError` or `ValueError` for what JSON cannot hold.
    """
    text = plain(document)
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ManifestTooLarge("a manifest's text is limited to 256 KiB")
    return text


def document(manifest: Manifest) -> dict[str, Any]:
    """A manifest as the JSON object that gets signed, still without key and signature."""
    return {"format": FORMAT, **msgspec.structs.asdict(manifest)}


def parse(text: str) -> tuple[Manifest, dict[str, Any]]:
    """Read a manifest's text, whoever wrote it, and its whole JSON object; `NotAManifest` otherwise."""
    if len(text) > MAX_TEXT_BYTES:
        raise NotAManifest("the text is longer than a manifest may be")
    try:
        found = _decode(text.encode())
        if found.get("format") != FORMAT:
            raise NotAManifest("the text is not a manifest of a known format")
        return msgspec.convert(found, Manifest), found
    except (msgspec.MsgspecError, UnicodeEncodeError, ValueError, RecursionError) as error:
        raise NotAManifest("the text is not a manifest") from error
