"""Equal frames give equal bytes in every kind of video, so that videos are reproducible."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sixfold.engines.encode import optimizer
from sixfold.engines.video.encode import AUDIO_RATE, KINDS, AudioSource, VideoEncoder, VideoKind
from tests.harness.cases import nightly_after


@pytest.mark.parametrize("name", nightly_after(3, [*KINDS, *(f"av1-{name}" for name in optimizer.AV1)]))
def test_repeated_encoding_gives_equal_bytes(name: str, tmp_path: Path) -> None:
    kind = optimizer.AV1[name.removeprefix("av1-")] if name.startswith("av1-") else KINDS[name]
    results = {_write(tmp_path / f"{at}.film", kind) for at in range(5)}
    assert len(results) == 1


def _write(path: Path, kind: VideoKind) -> bytes:
    noise = np.random.default_rng(7)
    wave = (noise.random((2, AUDIO_RATE // 10)) - 0.5).astype(np.float32)
    with VideoEncoder(path, (722, 96), Fraction(25), AudioSource.of(wave), kind) as video:
        for _ in range(3):
            video.add(noise.integers(0, 256, (96, 722, 4 if "a" in kind.pixel_format else 3), np.uint8))
    return path.read_bytes()
