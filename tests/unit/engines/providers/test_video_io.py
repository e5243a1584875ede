"""Videos of providers are decoded in another process, whose memory is limited."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import msgspec
import pytest

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.providers import video_io
from sixfold.engines.providers.video_io import VideoFit
from sixfold.engines.video import task_parser
from sixfold.engines.video.conform import ConformTarget
from tests.api.media_samples import write_video

UNREADABLE = "Acme returned a video that cannot be read: try again."
COUNTED = task_parser.parse({"num_frames": 20, "frames_per_second": 24, "width": 48, "height": 32})
FITS = {
    "unchanged": (VideoFit(), (64, 48), 25.0),
    "cut": (VideoFit(ConformTarget("480p", (48, 32), 0.5, sound=False)), (48, 32), 25.0),
    "retimed": (VideoFit(task=msgspec.structs.replace(COUNTED, rate=Fraction(12)), rate=25), (48, 32), 12.0),
}


@pytest.mark.parametrize("fit", FITS)
async def test_video_is_decoded_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the video was opened in this process")

    path = tmp_path / "a.mp4"
    write_video(path, size=(64, 48), rate=25, frames=50)
    monkeypatch.setattr(av, "open", refuse)
    changes, size, rate = FITS[fit]
    artifact = await video_io.fit_video([path], changes, "Acme")
    assert (artifact.info["width"], artifact.info["height"], artifact.info["fps"]) == (*size, rate)
    assert (artifact.path == path) == (fit == "unchanged")


async def test_process_over_its_limit_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mp4"
    write_video(path)
    monkeypatch.setattr(video_io, "_MEMORY_BYTES", 256 * 2**20)
    with pytest.raises(EngineError) as raised:
        await video_io.fit_video([path], VideoFit(), "Acme")
    assert str(raised.value) == UNREADABLE


@pytest.mark.parametrize("data", [b"", b"no video", b"\0\0\0\x18ftypisom" + bytes(2**16)])
async def test_unreadable_video_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(data)
    with pytest.raises(EngineError) as raised:
        await video_io.fit_video([path], VideoFit(), "Acme")
    assert str(raised.value) == UNREADABLE
