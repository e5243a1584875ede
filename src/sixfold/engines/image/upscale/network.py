"""A small network, trained by `tools/train_upscaler.py`, that enlarges images two or four times.

Weights, inputs and the values between layers are integers, and no sum reaches 2^24, so that float32 holds
every sum exactly: the result is the same in any order of addition and with any number of threads.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.upscale import restore

Array = NDArray[Any]

CHANNELS, BLOCKS = 32, 3
# Values between layers are integers from 0 to `MAX_LEVEL`, in units of 1 / `STEPS`.
STEPS, MAX_LEVEL = 512, 1023
# Pixels around an image that a result depends on: one for each convolution of 3 x 3.
REACH = 2 * BLOCKS + 2
# Rows computed at a time, to bound the memory of the unrolled convolution.
_ROWS = 16


class Layer(msgspec.Struct, frozen=True):
    """A convolution of 3 x 3: a matrix of inputs x outputs, a bias, and a factor for each output."""

    matrix: Array
    bias: Array
    factor: Array


def stretched(small: Array, scale: int) -> Array:
    """Return `small` (values from 0 to 255) enlarged by bicubic interpolation, as float32."""
    size = (small.shape[1] * scale, small.shape[0] * scale)
    return cv2.resize(small.astype(np.float32), size, interpolation=cv2.INTER_CUBIC)


@cache
def layers() -> dict[str, Layer]:
    with np.load(Path(__file__).with_name("network.npz")) as file:
        names = [name.removesuffix(".bias") for name in file.files if name.endswith(".bias")]
        return {
            name: _layer(name, *(file[f"{name}.{part}"] for part in ("weights", "bias", "exponents")))
            for name in names
        }


def _layer(name: str, weights: Array, bias: Array, exponents: Array) -> Layer:
    # The first layer reads steps of 1/128; the last one writes levels, of which 1 is 128.
    gain = {"first": 2, "x": -2}.get(name.rstrip("24"), 0)
    matrix = weights.transpose(2, 3, 1, 0).reshape(-1, len(weights)).astype(np.float32)
    factor = np.exp2(gain - exponents.astype(np.float32))
    return Layer(matrix, bias.astype(np.float32), factor)


def enlarge(small: Array, scale: int) -> Array:
    """Return `small` (HxWx3, float32 of 0 to 1 in steps of 1/255) enlarged two or four times."""
    levels = np.rint(small * 255)
    large = stretched(levels, scale) + correction(levels, scale)
    return np.clip(restore.correct(large, levels, 1) / 255, 0, 1)


def correction(levels: Array, scale: int) -> Array:
    """Return the network's correction of the bicubic enlargement of an image with values from 0 to 255."""
    network = layers()
    padded = cv2.copyMakeBorder(levels - 128, REACH, REACH, REACH, REACH, cv2.BORDER_REFLECT)
    values = _steps(_convolve(padded, network["first"]))
    for number in range(0, 2 * BLOCKS, 2):
        inner = _steps(_convolve(values, network[f"body{number}"]))
        values = np.clip(
            values[2:-2, 2:-2] + np.rint(_convolve(inner, network[f"body{number + 1}"])), 0, MAX_LEVEL
        )
    blocks = _convolve(values, network[f"x{scale}"])
    height, width = levels.shape[:2]
    blocks = blocks.reshape(height, width, 3, scale, scale).transpose(0, 3, 1, 4, 2)
    return blocks.reshape(height * scale, width * scale, 3)


def _steps(values: Array) -> Array:
    return np.clip(np.rint(values, out=values), 0, MAX_LEVEL, out=values)


def _convolve(values: Array, layer: Layer) -> Array:
    """Return the convolution without padding: two rows and columns fewer."""
    height, width, channels = values.shape[0] - 2, values.shape[1] - 2, values.shape[2]
    result = np.empty((height, width, layer.matrix.shape[1]), np.float32)
    for top in range(0, height, _ROWS):
        bottom = min(height, top + _ROWS)
        unrolled = np.empty((bottom - top, width, 9, channels), np.float32)
        for place in range(9):
            row, column = divmod(place, 3)
            unrolled[:, :, place] = values[top + row : bottom + row, column : column + width]
        sums = unrolled.reshape(-1, 9 * channels) @ layer.matrix
        result[top:bottom] = ((sums + layer.bias) * layer.factor).reshape(bottom - top, width, -1)
    return result
