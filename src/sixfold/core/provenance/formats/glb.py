"""GLB: `asset.extras.sixfold` in the JSON chunk, whose other content is unchanged."""

from __future__ import annotations

import struct

import msgspec

from sixfold import errors
from sixfold.core.input_limits import json_limits
from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable, text_of
from sixfold.core.provenance.formats.parts import MalformedFile

_JSON, _BINARY = b"JSON", b"BIN\0"
_MAX_JSON_BYTES = 16 * 2**20
_ASSET_KEPT = frozenset({"version", "minVersion"})
_Object = dict[str, msgspec.Raw]


def matches(data: bytes) -> bool:
    """Return whether the data begins like a GLB file of version 2."""
    return data[:8] == b"glTF\x02\0\0\0"


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that put the text into the asset's extras."""
    end = _json_end(data)
    if end is None or int.from_bytes(data[8:12], "little") != len(data):
        raise Unembeddable("not a complete GLB")
    try:
        scene = _object(_json(data, end))
        asset = _object(scene["asset"])
        extras = _object(asset.get("extras", b"{}"))
    except (KeyError, ValueError, RecursionError) as error:
        raise Unembeddable("the JSON of this GLB must have an asset object") from error
    extras["sixfold"] = msgspec.Raw(msgspec.json.encode(text))
    asset["extras"] = msgspec.Raw(msgspec.json.encode(extras))
    return [_replaced(scene, asset, end, len(data) - end)]


def extras_removals(data: bytes) -> list[FileEdit]:
    """Return the edits that remove the extras of the scene and the asset, the generator, and other chunks."""
    end = _json_end(data)
    if end is None:
        raise Unembeddable("not a complete GLB")
    scene = _object(_json(data, end))
    asset = _object(scene["asset"])
    scene.pop("extras", None)
    after = end
    if data[end + 4 : end + 8] == _BINARY:
        after += 8 + int.from_bytes(data[end : end + 4], "little")
    fields = {name: value for name, value in asset.items() if name in _ASSET_KEPT}
    return [_replaced(scene, fields, end, after - end), FileEdit(after, len(data), b"")]


def _replaced(scene: _Object, asset: _Object, end: int, following: int) -> FileEdit:
    """Return the edit that replaces the sizes and the JSON chunk, with the bytes `following` it."""
    scene["asset"] = msgspec.Raw(msgspec.json.encode(asset))
    body = msgspec.json.encode(scene)
    body += b" " * (-len(body) % 4)
    total = following + 20 + len(body)
    sizes = total.to_bytes(4, "little") + len(body).to_bytes(4, "little") + _JSON
    return FileEdit(8, end, sizes + body)


def extract(data: bytes) -> str | None:
    """Return the text in the asset's extras."""
    end = _json_end(data)
    if end is None:
        return None
    try:
        extras = _object(_object(_object(_json(data, end))["asset"])["extras"])
        return text_of(msgspec.json.decode(extras["sixfold"], type=str).encode())
    except (KeyError, ValueError, RecursionError):
        return None


def assemble(text: bytes, binary: bytes) -> bytes:
    """Return a GLB file from a JSON string and its binary data, both padded to four bytes."""
    text += b" " * (-len(text) % 4)
    binary += b"\0" * (-len(binary) % 4)
    total = 28 + len(text) + len(binary)
    head = struct.pack("<4sIII4s", b"glTF", 2, total, len(text), _JSON)
    return head + text + struct.pack("<I4s", len(binary), _BINARY) + binary


def _json_end(data: bytes) -> int | None:
    if not matches(data) or data[16:20] != _JSON:
        return None
    end = 20 + int.from_bytes(data[12:16], "little")
    return end if end <= len(data) else None


def _json(data: bytes, end: int) -> bytes:
    """Return the JSON chunk; raises `MalformedFile` if it has too many bytes or values."""
    if end > _MAX_JSON_BYTES:
        raise MalformedFile(f"the JSON of a GLB must have at most {_MAX_JSON_BYTES:,} bytes")
    # Some encoders pad with zeros instead of spaces.
    text = data[20:end].rstrip(b" \0")
    try:
        json_limits.GRAPH.check(text)
    except errors.InputTooLarge as error:
        raise MalformedFile(error.message) from error
    return text


def _object(raw: bytes | msgspec.Raw) -> _Object:
    return msgspec.json.decode(raw, type=_Object)
