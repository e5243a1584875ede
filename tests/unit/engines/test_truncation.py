"""Truncated files are detected by their own structure; data after the end is accepted."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.image import headers
from sixfold.engines.video import headers as film_headers
from tests.fakes import fault_server
from tests.harness import image_files

TAIL = b"<script>alert(1)</script>" * 40
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "png": ("PNG", {}),
    "jpeg": ("JPEG", {"quality": 90}),
    "progressive jpeg": ("JPEG", {"progressive": True, "comment": b"\xff\xd9 in a comment"}),
    "webp": ("WEBP", {}),
    "lossless webp": ("WEBP", {"lossless": True}),
    "gif": ("GIF", {}),
    "avif": ("AVIF", {}),
}


def picture(kind: str) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 255, (48, 64, 3), np.uint8)
    format_, options = KINDS[kind]
    return image_files.encode(Image.fromarray(pixels), format_, **options)


def webm() -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format="webm") as container:
        stream = container.add_stream("libvpx-vp9", rate=16, options={"deadline": "realtime"})
        stream.width, stream.height = 64, 48
        for level in range(4):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 40 * level, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


VIDEOS = {"mp4": lambda: fault_server.video(16, 4), "webm": webm, "gif": lambda: picture("gif")}


@pytest.mark.parametrize("kind", KINDS)
def test_image_is_complete_with_a_suffix_and_not_when_truncated(kind: str, tmp_path: Path) -> None:
    data, path = picture(kind), tmp_path / "picture"
    for content in (data, data + TAIL):
        path.write_bytes(content)
        headers.probe(path, whole=True)
    for cut in (len(data) - 1, len(data) - 20, len(data) // 2):
        path.write_bytes(data[:cut])
        with pytest.raises(headers.UnreadableImage, match="truncated or damaged"):
            headers.probe(path, whole=True)


@pytest.mark.parametrize("kind", VIDEOS)
def test_video_is_complete_with_a_suffix_and_not_when_truncated(kind: str, tmp_path: Path) -> None:
    data, path = VIDEOS[kind](), tmp_path / "film"
    for content in (data, data + bytes(64)):
        path.write_bytes(content)
        film_headers.seconds(path, whole=True)
    for cut in (len(data) - 1, len(data) // 2, 40):
        path.write_bytes(data[:cut])
        with pytest.raises(UnusableInput, match="truncated or damaged"):
            film_headers.seconds(path, whole=True)


def test_live_recording_without_length_is_accepted(tmp_path: Path) -> None:
    data, path = bytearray(webm()), tmp_path / "film"
    at = data.index(b"\x18\x53\x80\x67") + 4
    data[at : at + 8] = b"\x01" + b"\xff" * 7
    path.write_bytes(data[:-30])
    film_headers.seconds(path, whole=True)


def test_formats_without_an_end_mark_are_not_checked(tmp_path: Path) -> None:
    path = tmp_path / "sound"
    path.write_bytes(fault_server.tone(0.1)[:-100])
    film_headers.seconds(path, "audio", whole=True)
    Image.new("RGB", (64, 48)).save(path, "TIFF")
    path.write_bytes(path.read_bytes()[:-100])
    headers.probe(path, whole=True)
