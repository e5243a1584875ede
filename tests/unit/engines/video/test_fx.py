"""Posterized videos in both codecs with audio and times, and text-to-video at exact sizes."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.video import encode, yuv
from sixfold.engines.video.engine import CameraEngine
from sixfold.engines.video.posterize import VideoFxEngine
from tests.unit.engines import engine_runs
from tests.unit.engines.video import videos

SIZE, FRAMES, RATE = (96, 64), 12, Fraction(12)


def ramp(path: Path, sound: bool = True) -> Path:
    """Write one second of a moving gray ramp with a tone."""
    time = np.arange(encode.AUDIO_RATE) / encode.AUDIO_RATE
    tone = np.tile(0.3 * np.sin(2 * np.pi * 440 * time), (2, 1)).astype(np.float32)
    with encode.VideoEncoder(path, SIZE, RATE, encode.AudioSource.of(tone) if sound else None) as video:
        for at in range(FRAMES):
            row = (np.linspace(0, 255, SIZE[0]) + 2 * at).clip(0, 255).astype(np.uint8)
            video.add(yuv.of_rgb(np.repeat(np.tile(row, (SIZE[1], 1))[..., None], 3, axis=2)))
    return path


def posterize(folder: Path, source: Path, **inputs: Any) -> tuple[Any, Any, Any]:
    """Return the decoded video of a run, its artifact and its log."""
    artifact, result, note = engine_runs.run(VideoFxEngine(), folder, inputs, video=source)
    assert (artifact.content_type, result.quality) == ("video/mp4", "full")
    assert artifact.path is not None
    return videos.decode(artifact.path), artifact, note


def steps(frame: Any) -> int:
    """Count the tones that cover a considerable part of a frame."""
    counts = np.bincount((frame[..., 0].astype(int).ravel() + 3) // 6)
    return int((counts > 0.02 * frame[..., 0].size).sum())


@pytest.mark.parametrize(("codec", "name"), [("h264_hw", "h264"), ("av1_hw", "av1")])
def test_posterized_video_has_the_requested_levels(tmp_path: Path, codec: str, name: str) -> None:
    source = ramp(tmp_path / "in.mp4")
    video, artifact, note = posterize(tmp_path, source, num_levels=4, output_codec=codec)
    assert (len(video.frames), video.size, video.rate) == (FRAMES, SIZE, RATE)
    assert steps(video.frames[5]) == 4
    assert video.sound is not None
    assert video.sound[2] == pytest.approx(1, abs=0.06)
    assert dict(artifact.info) == {"width": 96, "height": 64, "duration": 1.0, "fps": 12}
    assert note.lines == [f"encoded in software by {'x264' if name == 'h264' else 'SVT-AV1'}"]
    with av.open(str(artifact.path)) as container:
        codecs = {"libdav1d": "av1", "av1": "av1", "h264": "h264"}
        assert codecs[container.streams.video[0].codec_context.name] == name
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_OTHER}, "nobody goes first"


def test_two_levels_are_black_and_white_and_256_change_little(tmp_path: Path) -> None:
    source = ramp(tmp_path / "in.mp4", sound=False)
    two, _, _ = posterize(tmp_path, source, num_levels=2)
    assert steps(two.frames[0]) == 2
    assert two.sound is None
    all_of_them, _, _ = posterize(tmp_path, source, num_levels=256)
    apart = np.abs(all_of_them.frames[3].astype(int) - videos.decode(source).frames[3])
    assert apart.mean() < 2


def test_equal_videos_give_equal_bytes(tmp_path: Path) -> None:
    source = ramp(tmp_path / "in.mp4")
    first, second = (posterize(tmp_path, source, num_levels=5)[1].path.read_bytes() for _ in range(2))
    assert first == second


def test_webm_is_decoded_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.webm"
    with av.open(str(path), "w", format="webm") as container:
        stream = container.add_stream("libvpx-vp9", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for level in range(5):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), level * 50, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    video, _, _ = posterize(tmp_path, path, num_levels=8)
    assert len(video.frames) == 5
    for data in (b"no film", b"#EXTM3U\nfile:///etc/passwd", path.read_bytes()[:300]):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(UnusableInput, match="video"):
            posterize(tmp_path, tmp_path / "bad")


def test_text_to_video_has_requested_size_and_ignores_an_image(tmp_path: Path) -> None:
    wish = {"prompt": "a lake, slow zoom in", "width": 480, "height": 832, "num_frames": 3, "seed": 4}
    wish |= {"frames_per_second": 16}
    engine = CameraEngine(by_words=True)
    artifact, _, _ = engine_runs.run(engine, tmp_path, wish)
    assert artifact.path is not None
    alone = artifact.path.read_bytes()
    video = videos.decode(artifact.path)
    assert (video.size, video.rate, len(video.frames)) == ((480, 832), 16, 3)
    image = videos.write_image(tmp_path / "p.png", (90, 60))
    second_result = engine_runs.run(engine, tmp_path, wish, image=image)[0]
    assert second_result.path is not None
    assert second_result.path.read_bytes() == alone
