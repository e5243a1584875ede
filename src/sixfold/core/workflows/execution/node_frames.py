"""The messages between a server and a node worker: JSON with binary segments, and files.

server → worker   begin · run · load · child · release
worker → server   ready, then event · child · done · failed

A frame has two little-endian lengths of four bytes, then JSON, then bytes. The JSON refers to segments of the
bytes by offset and length.

Other workers have a separate format (`sixfold.worker.protocol`): each frame is one typed message without
segments. The engines package, which reads the frames of this module, must not import that one.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold.core.workflows.execution.node_sessions import IN_SESSION, NodeExecutionResult, OutputRef
from sixfold.core.workflows.ports import NodeArtifact, NodeFile

MAX_BYTES = 64 * 2**20  # per frame
# Data above the first limit in bytes, and the contents of a frame above the second limit, are passed as
# files.
_IN_FRAME = 2**16
_ALL_IN_FRAME = 2**20
_LENGTHS = 4

Row = Mapping[str, Any]


class BadFrame(Exception):
    """Raised if a frame is too long or not valid."""


class NodeFrame:
    """A frame to send, or a received frame; `payload` is its JSON."""

    def __init__(self, payload: dict[str, Any], data: bytes = b"") -> None:
        self.payload = payload
        self._segments: list[bytes] = [data] if data else []
        self._length = len(data)

    @property
    def binary(self) -> bytes:
        return b"".join(self._segments)

    def put(self, data: bytes, scratch: Path) -> list[int] | str:
        """Add data; return its offset and length, or the path of a new file in `scratch`."""
        if len(data) > _IN_FRAME or self._length + len(data) > _ALL_IN_FRAME:
            path = scratch / secrets.token_hex(12)
            path.write_bytes(data)
            return str(path)
        reference = [self._length, len(data)]
        self._segments.append(data)
        self._length += len(data)
        return reference

    def take(self, reference: list[int] | str, scratch: Path) -> bytes:
        """Return the data that `put` added and delete its file.

        Raises `BadFrame` if the file is outside `scratch`.
        """
        if isinstance(reference, str):
            path = Path(reference)
            if path.parent != scratch:
                raise BadFrame(f"{reference} is not in the run's folder")
            data = path.read_bytes()
            path.unlink()
            return data
        at, length = reference
        return self.binary[at : at + length]

    def encode(self) -> bytes:
        """Return the frame's bytes; raises `BadFrame`."""
        text = json.dumps(self.payload, default=_plain).encode()
        if len(text) + self._length > MAX_BYTES:
            raise BadFrame(f"a message must be at most {MAX_BYTES // 2**20} MiB")
        lengths = (len(text).to_bytes(_LENGTHS, "little"), self._length.to_bytes(_LENGTHS, "little"))
        return b"".join((*lengths, text, *self._segments))


class NodeFrameReader:
    """Splits a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes, max_frames: float = math.inf) -> list[NodeFrame]:
        """Return the frames completed by `data`; raises `BadFrame`.

        Frames above `max_frames` remain for the next call, whose `data` may be empty.
        """
        buffer, frames, at = self._buffer, list[NodeFrame](), 0
        buffer += data
        while len(buffer) - at >= 2 * _LENGTHS and len(frames) < max_frames:
            middle, start = at + _LENGTHS, at + 2 * _LENGTHS
            text = int.from_bytes(buffer[at:middle], "little")
            more = int.from_bytes(buffer[middle:start], "little")
            if text + more > MAX_BYTES:
                raise BadFrame(f"a frame must be at most {MAX_BYTES} bytes (got {text + more})")
            if len(buffer) - start < text + more:
                break
            try:
                payload = json.loads(bytes(buffer[start : start + text]))
            except ValueError as error:
                raise BadFrame(str(error)) from error
            at = start + text + more
            frames.append(NodeFrame(payload, bytes(buffer[start + text : at])))
        del buffer[:at]
        return frames


def _plain(value: object) -> object:
    """Convert NumPy numbers to Python numbers."""
    convert = getattr(value, "tolist", None)
    if callable(convert):
        return convert()
    raise TypeError(f"values of type {type(value).__name__} cannot be sent")


# -- rows ------------------------------------------------------------------------------------------


def value_row(value: Any) -> list[Any]:
    """Encode an input: a plain value, a file, or a reference to a value in the session."""
    match value:
        case OutputRef(node_id, slot):
            return ["ref", node_id, slot]
        case NodeFile():
            return ["file", file_row(value)]
        case _:
            return ["plain", value]


def read_value(row: list[Any]) -> Any:
    match row:
        case ["ref", str(node_id), int(slot)]:
            return OutputRef(node_id, slot)
        case ["file", file]:
            return read_file(file)
        case _:
            return row[1]


def file_row(file: NodeFile) -> Row:
    return {
        "digest": file.digest,
        "type": file.content_type,
        "path": str(file.path.absolute()),
        "name": file.name,
        "info": dict(file.info),
    }


def read_file(row: Row) -> NodeFile:
    return NodeFile(row["digest"], row["type"], Path(row["path"]), row["name"], row["info"])


def artifact_row(artifact: NodeArtifact, frame: NodeFrame, scratch: Path) -> Row:
    """Encode a file that a node created."""
    return {
        "type": artifact.content_type,
        "data": frame.put(artifact.data, scratch) if artifact.data else None,
        "path": str(artifact.path) if artifact.path else None,
        "kind": artifact.kind,
        "prefix": artifact.prefix,
        "temporary": artifact.temporary,
        "info": dict(artifact.info),
    }


def read_artifact(row: Row, frame: NodeFrame, scratch: Path) -> NodeArtifact:
    """Decode a file that a node created; data that is stored in a file is not read."""
    data, path = row["data"], row["path"]
    if isinstance(data, str):
        data, path = None, data
    if path is not None and Path(path).parent != scratch:
        raise BadFrame(f"{path} is not in the run's folder")
    return NodeArtifact(
        row["type"],
        b"" if data is None else frame.take(data, scratch),
        None if path is None else Path(path),
        row["kind"],
        row["prefix"],
        temporary=row["temporary"],
        info=row["info"],
    )


def result_row(result: NodeExecutionResult, frame: NodeFrame, scratch: Path) -> Row:
    return {
        "outputs": [[] if value is IN_SESSION else [value] for value in result.outputs],
        "sizes": result.sizes,
        "texts": result.texts,
        "artifacts": [artifact_row(artifact, frame, scratch) for artifact in result.artifacts],
        "ui": result.ui,
        "packed": None if result.packed is None else frame.put(result.packed, scratch),
    }


def needs_file(result: NodeExecutionResult) -> bool:
    """Return whether `result_row` writes a file."""
    sizes = [len(result.packed or b""), *(len(artifact.data) for artifact in result.artifacts)]
    return max(sizes) > _IN_FRAME or sum(sizes) > _ALL_IN_FRAME


def has_file(row: Row) -> bool:
    """Return whether `read_result` reads a file."""
    return isinstance(row["packed"], str)


def read_result(row: Row, frame: NodeFrame, scratch: Path) -> NodeExecutionResult:
    packed = row["packed"]
    return NodeExecutionResult(
        tuple(value[0] if value else IN_SESSION for value in row["outputs"]),
        tuple(row["sizes"]),
        tuple(row["texts"]),
        tuple(read_artifact(artifact, frame, scratch) for artifact in row["artifacts"]),
        row["ui"],
        None if packed is None else frame.take(packed, scratch),
    )
