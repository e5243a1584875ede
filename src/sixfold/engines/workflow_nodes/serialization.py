"""Serialization of node values for the cache: lossless, and compact for images with 8-bit values."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import blake3
import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.core.workflows.ports import ListValue, NodeFile
from sixfold.engines.workflow_nodes.values import AudioValue, FramesValue, VideoValue

_LEVEL = 1
_MAX_SMALL_BYTES = 2**14  # larger values are not decoded to look for numbers and strings
MAX_FILM_BYTES = 64 * 2**20  # the limit of the cache
_MAX_FLOAT_BYTES = 128 * 2**20  # larger arrays would exceed the limit of the cache even if compressed


class _Unpackable(Exception):
    """Raised for a value that cannot be serialized."""


class NodeValuePacker:
    """Serializes node outputs; a deserialized video is written to `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pack(self, values: Sequence[Any]) -> bytes | None:
        """Return the values as bytes, or None when one of them cannot be serialized."""
        try:
            return msgspec.msgpack.encode([_packed(value) for value in values])
        except _Unpackable:
            return None

    def unpack(self, data: bytes) -> tuple[Any, ...]:
        """Return the values that `pack` serialized."""
        return tuple(self._unpacked(row) for row in msgspec.msgpack.decode(data)) if data else ()

    def small(self, data: bytes) -> tuple[Any, ...] | None:
        """Return the values if all are numbers or strings, else None."""
        if len(data) > _MAX_SMALL_BYTES:
            return None
        rows = msgspec.msgpack.decode(data) if data else []
        return tuple(json.loads(row[2]) for row in rows) if all(row[0] == "json" for row in rows) else None

    def weigh(self, value: Any) -> int:
        """Return the memory of a value in bytes."""
        match value:
            case np.ndarray():
                return value.nbytes
            case AudioValue(wave, _):
                return wave.nbytes
            case FramesValue(frames, _, _):
                return frames.nbytes
            case ListValue():
                return sum(self.weigh(item) for item in value)
        return 0

    def _unpacked(self, row: Any) -> Any:
        kind, info, data = row
        match kind:
            case "json":
                return json.loads(data)
            case "bytes":
                pixels = np.frombuffer(zlib.decompress(data), np.uint8).reshape(info)
                return pixels.astype(np.float32) / np.float32(255)
            case "floats":
                return np.frombuffer(zlib.decompress(data), np.float32).reshape(info).copy()
            case "sound":
                return AudioValue(self._unpacked(data), info)
            case "film":
                return VideoValue(self._file(info, data))
            case _:
                return ListValue(self._unpacked(each) for each in data)

    def _file(self, content_type: str, data: bytes) -> NodeFile:
        digest = blake3.blake3(data).hexdigest()
        path = self._folder / digest
        if not path.exists():
            path.write_bytes(data)
        return replace(NodeFile(digest, content_type, path))


def _packed(value: Any) -> list[Any]:
    match value:
        case np.ndarray():
            return _array(value)
        case AudioValue(wave, rate):
            return ["sound", rate, _array(wave)]
        case VideoValue(file):
            if file.path.stat().st_size > MAX_FILM_BYTES:
                raise _Unpackable
            return ["film", file.content_type, file.path.read_bytes()]
        case ListValue():
            return ["many", None, [_packed(item) for item in value]]
        case None | bool() | int() | float() | str():
            return ["json", None, json.dumps(value)]
    raise _Unpackable


def _array(value: Any) -> list[Any]:
    """Pack multiples of 1/255 as bytes, and other floats unchanged; raises `_Unpackable` for large arrays."""
    pixels = np.clip(np.rint(value * np.float32(255)), 0, 255).astype(np.uint8)
    if np.array_equal(pixels.astype(np.float32) / np.float32(255), value):
        return ["bytes", list(value.shape), zlib.compress(pixels.tobytes(), _LEVEL)]
    if value.nbytes > _MAX_FLOAT_BYTES:
        raise _Unpackable
    floats = np.ascontiguousarray(value, np.float32)
    return ["floats", list(value.shape), zlib.compress(floats.tobytes(), _LEVEL)]
