"""PocketSphinx's model of sounds, and the same moved to how a formant synthesiser sounds.

`ears.npz` says how far each mean moves, in sixteenths of its deviation; it was learnt from our own English
voices by what became `python -m tools.train_acoustic_adaptation`. The model itself is read where its package
has it.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]

STEPS = 16  # to a deviation
_END = b"endhdr\n"
_CHECKED = b"chksum0 yes\n"
_LEAST = 1e-4  # of a variance, as the recogniser has it


def read(path: Path) -> tuple[bytes, Values]:
    """A file of means or variances: what is before the values, and they: book × stream × density × part."""
    raw = path.read_bytes()
    at = raw.index(_END) + len(_END) + 4
    books, streams, densities = struct.unpack_from("<3I", raw, at)
    parts = struct.unpack_from("<I", raw, at + 12)[0]
    at += 12 + 4 * streams
    (count,) = struct.unpack_from("<I", raw, at)
    values = np.frombuffer(raw, "<f4", count, at + 4).reshape(books, streams, densities, parts)
    return raw[: at + 4], values


def variances(model: Path) -> Values:
    """The variances of a model, as the recogniser has them."""
    return np.maximum(read(model / "variances")[1], np.float32(_LEAST))


def means(model: Path) -> Values:
    """The means of a model."""
    return read(model / "means")[1]


def write(model: Path, moved: Values, path: Path) -> Path:
    """The means of a model in the form in which they are read, without a checksum."""
    path.write_bytes(read(model / "means")[0].replace(_CHECKED, b"") + moved.astype("<f4").tobytes())
    return path


@cache
def _moves() -> NDArray[np.int8]:
    with (
        resources.files("sixfold.engines.speech").joinpath("ears.npz").open("rb") as file,
        np.load(file) as kept,
    ):
        return kept["moves"]


def moved(model: Path) -> Values:
    """The means of a model, moved to the synthesiser's sounds."""
    deviations = np.sqrt(variances(model))
    away = _moves().astype(np.float32) / np.float32(STEPS)
    return (means(model) + deviations * away).astype(np.float32)


def steps(model: Path, wanted: NDArray[Any]) -> NDArray[np.int8]:
    """What `moved` takes to give about these means."""
    away = (wanted - means(model)) / np.sqrt(variances(model)) * STEPS
    return np.clip(np.rint(away), -127, 127).astype(np.int8)
