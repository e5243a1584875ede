"""An ONNX model small enough to write by hand: one 1x1 convolution from three channels to one."""

from __future__ import annotations

import struct
from pathlib import Path


def _varint(value: int) -> bytes:
    result = b""
    while value > 127:
        result += bytes([value & 127 | 128])
        value >>= 7
    return result + bytes([value])


def _field(number: int, value: bytes | int | str) -> bytes:
    """Return a field of a protobuf message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _tensor(name: str, shape: tuple[int, ...], values: tuple[float, ...]) -> bytes:
    dims = b"".join(_field(1, side) for side in shape)
    return dims + _field(2, 1) + _field(8, name) + _field(9, struct.pack(f"<{len(values)}f", *values))


def _value(name: str, shape: tuple[int | str, ...]) -> bytes:
    dims = b"".join(_field(1, _field(1 if isinstance(side, int) else 2, side)) for side in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, 1) + _field(2, dims)))


def write(path: Path, weights: tuple[float, float, float], bias: float = 0.0, side: int | str = 32) -> Path:
    """Write a model whose mask is `weights · channels + bias`; `side` is a word if the size is not fixed."""
    node = _field(1, "x") + _field(1, "w") + _field(1, "b") + _field(2, "mask") + _field(4, "Conv")
    graph = _field(1, node) + _field(2, "tiny")
    graph += _field(5, _tensor("w", (1, 3, 1, 1), weights)) + _field(5, _tensor("b", (1,), (bias,)))
    graph += _field(11, _value("x", (1, 3, side, side))) + _field(12, _value("mask", (1, 1, side, side)))
    model = _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))
    path.write_bytes(model)
    return path
