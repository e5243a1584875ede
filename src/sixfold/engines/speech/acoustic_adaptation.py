"""PocketSphinx's acoustic model and its adaptation to a formant synthesizer.

`acoustic_adaptation.npz` contains the shift of each mean in sixteenths of its standard deviation, trained on
the embedded English voices by `python -m tools.train_acoustic_adaptation`. The model itself is read from its
package.
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

STEPS = 16  # steps per standard deviation
_END = b"endhdr\n"
_CHECKED = b"chksum0 yes\n"
# The floor that the recognizer applies to variances.
_MIN_VARIANCE = 1e-4


def read(path: Path) -> tuple[bytes, Values]:
    """Read means or variances; return the file's header and the values (book × stream × density × part)."""
    raw = path.read_bytes()
    at = raw.index(_END) + len(_END) + 4
    books, streams, densities = struct.unpack_from("<3I", raw, at)
    parts = struct.unpack_from("<I", raw, at + 12)[0]
    at += 12 + 4 * streams
    (count,) = struct.unpack_from("<I", raw, at)
    values = np.frombuffer(raw, "<f4", count, at + 4).reshape(books, streams, densities, parts)
    return raw[: at + 4], values


def variances(model: Path) -> Values:
    """Return the variances of a model, each at least the minimum that the recognizer uses."""
    return np.maximum(read(model / "variances")[1], np.float32(_MIN_VARIANCE))


def means(model: Path) -> Values:
    return read(model / "means")[1]


def write(model: Path, values: Values, path: Path) -> Path:
    """Write means in the model's file format, without a checksum."""
    path.write_bytes(read(model / "means")[0].replace(_CHECKED, b"") + values.astype("<f4").tobytes())
    return path


@cache
def _shifts() -> NDArray[np.int8]:
    with (
        resources.files("sixfold.engines.speech").joinpath("acoustic_adaptation.npz").open("rb") as file,
        np.load(file) as archive,
    ):
        return archive["moves"]


def adapted(model: Path) -> Values:
    """Return the means of a model adapted to the synthesizer."""
    deviations = np.sqrt(variances(model))
    shift = _shifts().astype(np.float32) / np.float32(STEPS)
    return (means(model) + deviations * shift).astype(np.float32)


def steps(model: Path, target: NDArray[Any]) -> NDArray[np.int8]:
    """Return the shifts with which `adapted` approximates the `target` means."""
    shift = (target - means(model)) / np.sqrt(variances(model)) * STEPS
    return np.clip(np.rint(shift), -127, 127).astype(np.int8)
