"""Pixels on their way out and back: what leaves is stripped, what returns is checked, fitted and encoded.

All of it takes a processor's time: callers run it in a thread. A source is encoded anew before it leaves,
upright and in sRGB, so that what its file says of places and people stays here. A picture that comes back
is decoded in full, which finds one that was cut off, and fitted to exactly the size that was asked for; a
PNG that is right already keeps its rows, checked to the last one, and loses what was written beside them.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import Artifact, EngineError
from sixfold.engines.image import decode, encode, png_cleaning
from sixfold.engines.image.decode import DecodedImage, Pixels, UnreadableImage

LONGEST = 2048  # pixels of a source's longer side: more than any of these models looks at
MAX_SIDE = 4096
_PROFILE_WITHIN = 4096  # bytes: a colour profile stands before the pixels


@dataclass(frozen=True, slots=True)
class UploadImage:
    """A source as it leaves: its bytes and their type, its own size, and the size that it is sent at."""

    data: bytes
    content_type: str
    own_size: tuple[int, int]
    size: tuple[int, int]

    @property
    def name(self) -> str:
        """A file name that says nothing."""
        return f"picture.{self.content_type.rpartition('/')[2]}"

    def data_uri(self) -> str:
        """The source as text that a JSON document can carry."""
        return f"data:{self.content_type};base64,{base64.b64encode(self.data).decode('ascii')}"


def prepared(path: Path, longest: int = LONGEST, shape: float | None = None) -> UploadImage:
    """A source to be sent, its middle in `shape` (width by height) where one is named.

    Raises `UnusableInput` when it cannot be read.
    """
    picture = decode.decode(path, target=(longest, longest))
    width, height = float(picture.width), float(picture.height)
    if shape is not None:
        width, height = min(width, height * shape), min(height, width / shape)
    scale = min(1.0, longest / max(width, height))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    rgb, alpha = _fitted(picture.rgb, size), None
    if picture.alpha is not None:
        alpha = _fitted(picture.alpha, size)
    format_ = "jpeg" if alpha is None else "png"
    data = encode.encode(rgb, alpha, format=format_, quality=95)
    return UploadImage(data, encode.CONTENT_TYPES[format_], _own_size(path, picture), size)


def finished(
    made: bytes | Path, size: tuple[int, int] | None, format_: str, quality: int, maker: str
) -> Artifact:
    """A provider's picture as the artifact that was ordered."""
    if kept := _kept(made, size, format_):
        return kept
    try:
        picture = decode.decode(made)
    except UnreadableImage as error:
        raise EngineError(f"{maker} gave a picture that cannot be read; try again.") from error
    width, height = size or (picture.width, picture.height)
    scale = min(1.0, MAX_SIDE / max(width, height))
    width, height = max(1, round(width * scale)), max(1, round(height * scale))
    rgb = _fitted(picture.rgb, (width, height))
    alpha = None if picture.alpha is None else _fitted(picture.alpha, (width, height))
    data = encode.encode(rgb, alpha, format=format_, quality=quality)
    return Artifact(encode.CONTENT_TYPES[format_], data, {"width": width, "height": height})


def _kept(made: bytes | Path, size: tuple[int, int] | None, format_: str) -> Artifact | None:
    """A sound PNG that is right already, without what was written into it beside its pixels."""
    data = made if isinstance(made, bytes) else made.read_bytes()
    if format_ != "png" or b"iCCP" in data[:_PROFILE_WITHIN]:
        return None
    try:
        kind, width, height = decode.probe(data)
    except UnreadableImage:
        return None
    if kind != "PNG" or max(width, height) > MAX_SIDE or size not in {None, (width, height)}:
        return None
    bare = png_cleaning.strip_metadata(data)
    return None if bare is None else Artifact("image/png", bare, {"width": width, "height": height})


def _own_size(path: Path, picture: DecodedImage) -> tuple[int, int]:
    """The size of a picture as it is seen: a JPEG may have been decoded smaller, and turned upright."""
    _, width, height = decode.probe(path)
    turned = (width > height) != (picture.width > picture.height)
    return (height, width) if turned else (width, height)


def _fitted(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """The middle of a picture at another shape, scaled so that nothing is left uncovered."""
    height, width = pixels.shape[:2]
    if (width, height) == size:
        return pixels
    scale = max(size[0] / width, size[1] / height)
    across, down = min(width, size[0] / scale), min(height, size[1] / scale)
    left, top = (width - across) / 2, (height - down) / 2
    box = (left, top, left + across, top + down)
    scaled = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS, box=box)
    return np.asarray(scaled, np.uint8)
