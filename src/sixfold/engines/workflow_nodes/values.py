"""Values that nodes exchange: images and masks as float arrays (as in ComfyUI), audio and video."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.ports import NodeArtifact, NodeContext, NodeFile
from sixfold.engines.image import decode, encode
from sixfold.engines.workflow_nodes import frame_split

Frames = NDArray[Any]  # float32: images, rows, columns, 3 or 4 channels, from 0 to 1
Mask = NDArray[Any]  # float32: images, rows, columns, from 0 to 1
Pixels = NDArray[Any]  # uint8


class AudioValue(msgspec.Struct, frozen=True):
    """Audio: `wave` is float32 of shape (channels, samples) from -1 to 1, `rate` in Hz."""

    wave: NDArray[Any]
    rate: int


class VideoValue(msgspec.Struct, frozen=True):
    """A video file that is not decoded; nodes with image inputs also accept a video."""

    file: NodeFile


class FramesValue(msgspec.Struct, frozen=True):
    """A video as frames and audio, not yet encoded."""

    frames: Frames
    fps: float
    sound: AudioValue | None = None


def frames(value: Any) -> Frames:
    """Return the images of an IMAGE input, or the frames of a video."""
    if isinstance(value, VideoValue):
        return frame_split.decode_frames(value.file.path)[0]
    if not isinstance(value, np.ndarray) or value.ndim != 4:
        raise UnusableInput("This input must be an image.")
    return value


def mask(value: Any) -> Mask:
    """Return a MASK input with shape (images, rows, columns)."""
    if not isinstance(value, np.ndarray):
        raise UnusableInput("This input must be a mask.")
    return value.reshape(-1, *value.shape[-2:])


def read(path: Path) -> tuple[Frames, Mask]:
    """Return the image in a file, and a mask that is white where the image is transparent."""
    try:
        decoded = decode.decode(path)
    except decode.UnreadableImage as error:
        raise UnusableInput(str(error)) from error
    image = decoded.rgb.astype(np.float32)[None] / np.float32(255)
    if decoded.alpha is None:
        return image, np.zeros((1, 64, 64), np.float32)
    return image, (1 - decoded.alpha.astype(np.float32) / 255)[None]


def to_bytes(image: Frames) -> Pixels:
    """Convert floats to 8-bit values, truncated as in ComfyUI."""
    return np.clip(image * np.float32(255), 0, 255).astype(np.uint8)


def png(pixels: Pixels) -> bytes:
    """Encode an image as PNG; the fourth channel, if any, is the alpha."""
    alpha = pixels[..., 3] if pixels.shape[-1] == 4 else None
    return encode.encode(_rgb(pixels), alpha, format="png")


def _rgb(pixels: Pixels) -> Pixels:
    return np.repeat(pixels[..., :1], 3, -1) if pixels.shape[-1] < 3 else pixels[..., :3]


def png_artifacts(image: Any, prefix: str, *, temporary: bool = False) -> Iterator[NodeArtifact]:
    for pixels in to_bytes(frames(image)):
        info = {"width": pixels.shape[1], "height": pixels.shape[0]}
        yield NodeArtifact("image/png", png(pixels), prefix=prefix, temporary=temporary, info=info)


def file(context: NodeContext, image: Any) -> NodeFile:
    """Return the first image as a PNG file for a child prediction."""
    return context.file(png(to_bytes(frames(image)[:1])[0]), "image/png")


def small_jpeg(pixels: Pixels) -> bytes:
    """Return a JPEG preview of at most 512 pixels."""
    thumbnail = Image.fromarray(_rgb(pixels))
    thumbnail.thumbnail((512, 512))
    out = io.BytesIO()
    thumbnail.save(out, format="JPEG", quality=80)
    return out.getvalue()
