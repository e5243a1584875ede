"""What goes from node to node: pictures and masks as float arrays (as ComfyUI has them), sound, films."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.ports import NodeArtifact, NodeContext, NodeFile
from sixfold.engines.image import decode, encode
from sixfold.engines.workflow_nodes import frame_split

Frames = NDArray[Any]  # float32: pictures, rows, columns, 3 or 4 channels, 0..1
Mask = NDArray[Any]  # float32: pictures, rows, columns, 0..1
Pixels = NDArray[Any]  # uint8


@dataclass(frozen=True, slots=True)
class AudioValue:
    """Sound: float32 (channels, samples) in -1..1."""

    wave: NDArray[Any]
    rate: int


@dataclass(frozen=True, slots=True)
class VideoValue:
    """A film that nobody has taken apart yet; it goes for its pictures, too."""

    file: NodeFile


@dataclass(frozen=True, slots=True)
class FramesValue:
    """A film put together of pictures and sound, and not written yet."""

    frames: Frames
    fps: float
    sound: AudioValue | None = None


def frames(value: Any) -> Frames:
    """The pictures of an IMAGE, those of a film taken apart."""
    if isinstance(value, VideoValue):
        return frame_split.taken_apart(value.file.path)[0]
    if not isinstance(value, np.ndarray) or value.ndim != 4:
        raise UnusableInput("this input takes pictures")
    return value


def mask(value: Any) -> Mask:
    """A MASK as pictures of one channel."""
    if not isinstance(value, np.ndarray):
        raise UnusableInput("this input takes a mask")
    return value.reshape(-1, *value.shape[-2:])


def read(path: Path) -> tuple[Frames, Mask]:
    """A file's picture, and a mask that is white where it is transparent."""
    try:
        picture = decode.decode(path)
    except decode.UnreadableImage as error:
        raise UnusableInput(str(error)) from error
    image = picture.rgb.astype(np.float32)[None] / np.float32(255)
    if picture.alpha is None:
        return image, np.zeros((1, 64, 64), np.float32)
    return image, (1 - picture.alpha.astype(np.float32) / 255)[None]


def whole(image: Frames) -> Pixels:
    """Floats as bytes, cut off as ComfyUI cuts them."""
    return np.clip(image * np.float32(255), 0, 255).astype(np.uint8)


def png(picture: Pixels) -> bytes:
    """One picture's bytes; the fourth channel is its cover."""
    alpha = picture[..., 3] if picture.shape[-1] == 4 else None
    return encode.encode(_rgb(picture), alpha, format="png")


def _rgb(picture: Pixels) -> Pixels:
    return np.repeat(picture[..., :1], 3, -1) if picture.shape[-1] < 3 else picture[..., :3]


def made(image: Any, prefix: str, *, temporary: bool = False) -> Iterator[NodeArtifact]:
    """A PNG of every picture."""
    for picture in whole(frames(image)):
        info = {"width": picture.shape[1], "height": picture.shape[0]}
        yield NodeArtifact("image/png", png(picture), prefix=prefix, temporary=temporary, info=info)


def file(context: NodeContext, image: Any) -> NodeFile:
    """The first picture as a file for one of the platform's models."""
    return context.file(png(whole(frames(image)[:1])[0]), "image/png")


def small_jpeg(picture: Pixels, side: int = 512) -> bytes:
    """A preview's bytes."""
    shown = Image.fromarray(_rgb(picture))
    shown.thumbnail((side, side))
    out = io.BytesIO()
    shown.save(out, format="JPEG", quality=80)
    return out.getvalue()
