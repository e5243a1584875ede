"""Thumbnails of audio: the waveform of the file, small and readable on both backgrounds."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.media.thumbnails import WIDTHS
from sixfold.engines.audio import files
from sixfold.engines.thumbnails import audio

MAX_BYTES = 40_000


def sound(path: Path, seconds: float, format_: str = "wav") -> Path:
    """Write a tone that is silent in its second half."""
    time = np.arange(round(seconds * files.RATE)) / files.RATE
    tone = 0.8 * np.sin(2 * np.pi * 440 * time) * (time < seconds / 2)
    files.write(np.stack([tone, tone]).astype(np.float32), format_, path)
    return path


def heights(data: bytes) -> np.ndarray:
    """Return the number of opaque pixels of each column."""
    alpha = np.array(Image.open(io.BytesIO(data)).convert("RGBA"))[..., 3]
    return (alpha > 128).sum(0)


@pytest.mark.parametrize("format_", ["mp3", "wav", "flac"])
def test_waveform_shows_where_the_sound_is(tmp_path: Path, format_: str) -> None:
    columns = heights(audio.render(str(sound(tmp_path / f"tone.{format_}", 3.0, format_)), 320))
    assert columns.size == 320
    assert columns[20:150].max() > 200
    assert 0 < columns[180:300].max() < 20


def test_short_audio_has_a_waveform(tmp_path: Path) -> None:
    assert heights(audio.render(str(sound(tmp_path / "click.wav", 0.01)), 160)).max() > 80


@pytest.mark.parametrize("width", WIDTHS)
def test_waveform_is_small(tmp_path: Path, width: int) -> None:
    noise = np.random.default_rng(7).uniform(-1, 1, (2, 4 * files.RATE)).astype(np.float32)
    files.write(noise, "wav", tmp_path / "noise.wav")
    data = audio.render(str(tmp_path / "noise.wav"), width)
    assert data[8:12] == b"WEBP"
    assert len(data) <= MAX_BYTES


def test_file_without_audio_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_bytes(b"no audio")
    with pytest.raises(UnusableInput):
        audio.render(str(tmp_path / "text.wav"), 320)
