"""Still images of a video: its first frame as WebP, or a sheet of frames as JPEG.

They are created in a separate process with limits on memory and time, because a provider may have returned
the video.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image

from sixfold import process_resources
from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.image import decoder_process
from sixfold.engines.video import probe
from sixfold.engines.video.decoder import VideoReader

# The longest side of a thumbnail and of a frame in a sheet.
_THUMBNAIL_SIDE, _SHEET_SIDE = 1024, 320
_COLUMNS, _ROWS = 5, 5
_MEMORY_BYTES = 2**30


def render(path: str, variant: str) -> bytes:
    """Return the `thumbnail` or `spritesheet` of a video; raises `UnusableInput`. Takes seconds."""
    return decoder_process.call("sixfold.engines.thumbnails.video:make", _MEMORY_BYTES, path, variant)


def make(path: str, variant: str) -> bytes:
    """Return the result of `render`; limits the memory of this process, as a header may name many frames."""
    process_resources.limit_data(_MEMORY_BYTES)
    try:
        seconds = probe.read(Path(path)).seconds
    except probe.NotAVideo as error:
        raise UnusableInput("The video cannot be read") from error
    reader = VideoReader(Path(path))
    content = BytesIO()
    try:
        if variant == "thumbnail":
            _frame(reader, 0.0, _THUMBNAIL_SIDE).save(content, "WEBP")
        else:
            _sheet(reader, seconds).save(content, "JPEG", quality=85)
    finally:
        reader.close()
    return content.getvalue()


def _sheet(reader: VideoReader, seconds: float) -> Image.Image:
    """Return frames at equal distances, in rows from left to right."""
    count = _COLUMNS * _ROWS
    sheet: Image.Image | None = None
    for index in range(count):
        frame = _frame(reader, seconds * index / count, _SHEET_SIDE)
        if sheet is None:
            sheet = Image.new("RGB", (frame.width * _COLUMNS, frame.height * _ROWS))
        row, column = divmod(index, _COLUMNS)
        sheet.paste(frame, (column * frame.width, row * frame.height))
    assert sheet is not None  # noqa: S101 - it has at least one frame
    return sheet


def _frame(reader: VideoReader, second: float, side: int) -> Image.Image:
    frame = reader.at(second)
    width, height = reader.size(frame)
    scale = min(1.0, side / max(width, height))
    size = max(2, round(width * scale)), max(2, round(height * scale))
    return Image.fromarray(reader.pixels(frame, size)[..., :3])
