"""Recordings of sessions: bounded, and encoded with the times at which the viewer received them."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import av
import cv2
import msgspec
import numpy as np
import pytest

from sixfold import errors
from sixfold.core.catalog.engines import Task
from sixfold.core.sessions import recording
from sixfold.core.sessions.recording import EndedRecordings, SessionRecording
from sixfold.engines.live.motion.engine import MotionEngine
from sixfold.engines.live.recording import FPS, RecordingEngine
from tests.unit.engines.video.videos import Recorder


def jpeg(shade: int, size: tuple[int, int] = (64, 48)) -> bytes:
    return cv2.imencode(".jpg", np.full((*size[::-1], 3), shade, np.uint8))[1].tobytes()


def encode(session: SessionRecording, folder: Path) -> tuple[dict[str, Any], list[float]]:
    """Return the properties of the video of a recording, and the mean brightness of its frames."""
    (folder / "frames.zip").write_bytes(session.archive())
    task = Task("t", "live-recording", {}, {"frames": folder / "frames.zip"})
    (artifact,) = RecordingEngine().run(task, Recorder(folder)).artifacts
    with av.open(str(artifact.path)) as container:
        means = [float(frame.to_ndarray(format="gray").mean()) for frame in container.decode(video=0)]
    return dict(artifact.info), means


def test_frames_are_shown_at_the_times_of_their_session(tmp_path: Path) -> None:
    recording = SessionRecording("gray")
    for t, shade in ((1000, 40), (1500, 200), (2000, 120)):
        recording.add(t, "jpeg", jpeg(shade))
    info, means = encode(recording, tmp_path)
    assert (info["width"], info["height"], recording.seconds) == (64, 48, 1.0)
    assert len(means) == FPS + 1
    expected = [40] * 12 + [200] * 12 + [120]
    assert np.abs(np.subtract(means, expected)).max() < 8


def test_poses_become_a_video_of_the_body(tmp_path: Path) -> None:
    recording = SessionRecording("walk")
    poses = (
        MotionEngine()
        .run(Task("t", "motion-model", {"prompt": "walk", "steps": 20}), Recorder(tmp_path))
        .data
    )
    for pose in poses["value"]:
        recording.add(pose["t"], "json", msgspec.json.encode(pose))
    info, means = encode(recording, tmp_path)
    assert (info["width"], info["height"]) == (960, 540)
    assert len(means) == round(0.95 * FPS) + 1
    assert min(means) > 22, "a body stands on the dark ground"


def test_recorded_frames_are_stored_on_disk(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        session = SessionRecording("", folder=tmp_path / "recordings")
        for t in range(600):
            session.add(t, "jpeg", bytes([t % 256]) * 100_000)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert session.size == 600 * 100_000
    assert grown < 2**20
    with zipfile.ZipFile(io.BytesIO(session.archive())) as archive:
        assert archive.read("00000599.jpeg") == bytes([599 % 256]) * 100_000


def test_uncollected_recordings_are_deleted() -> None:
    now = 0.0
    recordings = EndedRecordings(lambda: now)
    for number in range(3):
        recordings.add(f"of one {number}", SessionRecording("", "one"))
    assert recordings.take("of one 0") is None, "an account has two"
    assert recordings.take("of one 1") is not None
    assert recordings.take("of one 1") is None
    now = recording.KEPT_SECONDS + 1
    assert recordings.take("of one 2") is None
    for number in range(recording.MAX_RECORDINGS + 1):
        recordings.add(f"of {number}", SessionRecording("", f"account {number}"))
    assert recordings.take("of 0") is None
    assert recordings.take("of 1") is not None


def test_recordings_are_bounded_and_invalid_archives_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SessionRecording("")
    session.add(0, "jpeg", b"x" * 10)
    session.add(recording.MAX_SECONDS * 1000 + 1, "jpeg", b"late")
    monkeypatch.setattr(recording, "MAX_BYTES", 15)
    session.add(1, "jpeg", b"x" * 6)
    session.add(2, "jpeg", b"x" * 5)
    assert [(t, size) for t, _, size in session.pieces] == [(0, 10), (2, 5)]
    for strange in (session, SessionRecording("")):
        with pytest.raises(errors.BadRequest):
            encode(strange, tmp_path)
