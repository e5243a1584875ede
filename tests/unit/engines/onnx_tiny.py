"""ONNX models small enough to write by hand, of the shapes that engines of pictures expect."""

from __future__ import annotations

from pathlib import Path

from tests.unit.engines.onnx_model import _field, _tensor, _value


def _node(kind: str, inputs: tuple[str, ...], output: str, **numbers: int) -> bytes:
    row = b"".join(_field(1, name) for name in inputs) + _field(2, output) + _field(4, kind)
    for name, number in numbers.items():
        row += _field(5, _field(1, name) + _field(3, number) + _field(20, 2))
    return _field(1, row)


def _saved(path: Path, graph: bytes) -> Path:
    path.write_bytes(
        _field(1, 8) + _field(7, graph + _field(2, "tiny")) + _field(8, _field(1, "") + _field(2, 13))
    )
    return path


def enlarger(path: Path, scale: int, side: int | str = "n") -> Path:
    """Repeats every pixel `scale` times each way."""
    rows = [[float(at % 3 == channel) for channel in range(3)] for at in range(3 * scale * scale)]
    weights = tuple(value for row in rows for value in row)
    graph = _node("Conv", ("x", "w"), "deep") + _node("DepthToSpace", ("deep",), "y", blocksize=scale)
    graph += _field(5, _tensor("w", (3 * scale * scale, 3, 1, 1), weights))
    graph += _field(11, _value("x", (1, 3, side, side))) + _field(12, _value("y", (1, 3, "a", "b")))
    return _saved(path, graph)


def filler(path: Path, side: int = 32) -> Path:
    """Makes what a mask covers white."""
    graph = _node("Max", ("x", "mask"), "y") + _field(11, _value("x", (1, 3, side, side)))
    graph += _field(11, _value("mask", (1, 1, side, side))) + _field(12, _value("y", (1, 3, side, side)))
    return _saved(path, graph)
