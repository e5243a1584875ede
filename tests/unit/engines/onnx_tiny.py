"""ONNX models small enough to write by hand, with the shapes that image engines expect."""

from __future__ import annotations

from pathlib import Path

from sixfold.engines.image.upscale import network
from tests.unit.engines.onnx_model import _field, _tensor, _value


def _node(kind: str, inputs: tuple[str, ...], output: str, **values: int | str) -> bytes:
    row = b"".join(_field(1, name) for name in inputs) + _field(2, output) + _field(4, kind)
    for name, value in values.items():
        number, code = (4, 3) if isinstance(value, str) else (3, 2)
        row += _field(5, _field(1, name) + _field(number, value) + _field(20, code))
    return _field(1, row)


def _save(path: Path, graph: bytes) -> Path:
    path.write_bytes(
        _field(1, 8) + _field(7, graph + _field(2, "tiny")) + _field(8, _field(1, "") + _field(2, 13))
    )
    return path


def enlarger(path: Path, scale: int, side: int | str = "n", gain: float = 1.0) -> Path:
    """Write a model that repeats each pixel `scale` times in each direction, `gain` times as bright."""
    rows = [[gain * (at % 3 == channel) for channel in range(3)] for at in range(3 * scale * scale)]
    weights = tuple(value for row in rows for value in row)
    graph = _node("Conv", ("x", "w"), "deep") + _node("DepthToSpace", ("deep",), "y", blocksize=scale)
    graph += _field(5, _tensor("w", (3 * scale * scale, 3, 1, 1), weights))
    graph += _field(11, _value("x", (1, 3, side, side))) + _field(12, _value("y", (1, 3, "a", "b")))
    return _save(path, graph)


def filler(path: Path, side: int = 32, kind: str = "Max") -> Path:
    """Write a model that fills the masked area with white, or with the result of another `kind` of node."""
    graph = _node(kind, ("x", "mask"), "y") + _field(11, _value("x", (1, 3, side, side)))
    graph += _field(11, _value("mask", (1, 1, side, side))) + _field(12, _value("y", (1, 3, side, side)))
    return _save(path, graph)


def recurrent(path: Path) -> Path:
    """Write a model with RVM's interface: red is the subject, with half the confidence in the first frame."""
    graph = _node("Conv", ("src", "w"), "red") + _node("Add", ("red", "r1i"), "more")
    graph += _node("Clip", ("more", "low", "high"), "pha") + _node("Identity", ("src",), "fgr")
    graph += _node("Max", ("r1i", "half"), "r1o")
    graph += b"".join(_node("Identity", (f"r{n}i",), f"r{n}o") for n in (2, 3, 4))
    graph += _field(5, _tensor("w", (1, 3, 1, 1), (0.5, -0.5, -0.5)))
    graph += _field(5, _tensor("half", (1, 1, 1, 1), (0.5,)))
    graph += _field(5, _tensor("low", (), (0.0,))) + _field(5, _tensor("high", (), (1.0,)))
    graph += _field(11, _value("src", (1, 3, "h", "w")))
    graph += b"".join(_field(11, _value(f"r{n}i", (1, f"c{n}", f"h{n}", f"w{n}"))) for n in (1, 2, 3, 4))
    graph += _field(11, _value("downsample_ratio", (1,)))
    graph += _field(12, _value("fgr", (1, 3, "h", "w"))) + _field(12, _value("pha", (1, 1, "h", "w")))
    graph += b"".join(_field(12, _value(f"r{n}o", (1, f"d{n}", f"e{n}", f"f{n}"))) for n in (1, 2, 3, 4))
    return _save(path, graph)


def upscaler(path: Path, scale: int) -> Path:
    """Write the network of the embedded upscaler, whose output is added to a bicubic enlargement."""
    graph, last, before = b"", "x", ""
    for name, layer in network.layers().items():
        if name.startswith("x") and name != f"x{scale}":
            continue
        inputs, outputs = len(layer.matrix) // 9, layer.matrix.shape[1]
        weights = layer.matrix.reshape(3, 3, inputs, outputs).transpose(3, 2, 0, 1)
        graph += _field(5, _tensor(f"{name}.w", (outputs, inputs, 3, 3), tuple(weights.ravel())))
        graph += _field(5, _tensor(f"{name}.b", (outputs,), tuple(layer.bias)))
        graph += _field(5, _tensor(f"{name}.f", (1, outputs, 1, 1), tuple(layer.factor)))
        graph += _node("Conv", (last, f"{name}.w", f"{name}.b"), f"{name}.sum", auto_pad="SAME_UPPER")
        graph += _node("Mul", (f"{name}.sum", f"{name}.f"), f"{name}.real")
        if name.startswith("x"):
            graph += _node("DepthToSpace", (f"{name}.real",), "y", blocksize=scale, mode="CRD")
            continue
        graph += _node("Round", (f"{name}.real",), f"{name}.whole")
        added = name.startswith("body") and int(name[4:]) % 2
        graph += _node("Add", (f"{name}.whole", before if added else "low"), f"{name}.added")
        graph += _node("Clip", (f"{name}.added", "low", "high"), name)
        last, before = name, before if name.startswith("body") and not added else name
    graph += _field(5, _tensor("low", (), (0.0,))) + _field(
        5, _tensor("high", (), (float(network.MAX_LEVEL),))
    )
    graph += _field(11, _value("x", (1, 3, "h", "w"))) + _field(12, _value("y", (1, 3, "a", "b")))
    return _save(path, graph)
