"""Engine that encodes the frames or poses of a recorded session as a video."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold import errors
from sixfold.core.catalog.engines import Artifact, Context, Result, Task
from sixfold.core.sessions.recording import MAX_BYTES, MAX_SECONDS
from sixfold.engines.live.motion import figure
from sixfold.engines.video.encode import VideoEncoder

FPS = 24
_MAX_SIDE = 2048

Pixels = NDArray[np.uint8]


class RecordingEngine:
    """Encodes an archive of `core.sessions.recording`."""

    name = "session-recording"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return the video, which shows the newest frame or pose at each moment."""
        target = context.scratch / "recording.mp4"
        with zipfile.ZipFile(task.files["frames"]) as archive:
            times = _times(archive)
            count = max(1, round((times[-1][0] - times[0][0]) * FPS / 1000) + 1)
            frames = _frames(archive, times, count)
            first = next(frames)
            height, width = (side - side % 2 for side in first.shape[:2])
            with VideoEncoder(target, (width, height), Fraction(FPS)) as video:
                video.add(first[:height, :width])
                for number, pixels in enumerate(frames, 2):
                    if pixels.shape != first.shape:
                        pixels = np.asarray(cv2.resize(pixels, first.shape[1::-1]), np.uint8)
                    video.add(pixels[:height, :width])
                    context.progress(0.95 * number / count)
        info = {"width": width, "height": height, "duration": round(count / FPS, 3), "fps": FPS}
        return Result((Artifact("video/mp4", info=info, path=target),))


def _times(archive: zipfile.ZipFile) -> list[tuple[int, str]]:
    entries = archive.infolist()
    if not entries:
        raise errors.BadRequest("The recording has no frames")
    if sum(entry.file_size for entry in entries) > MAX_BYTES:
        raise errors.BadRequest(f"A recording may be at most {MAX_BYTES >> 20} MiB")
    times = sorted((int(Path(entry.filename).stem), entry.filename) for entry in entries)
    if times[-1][0] - times[0][0] > MAX_SECONDS * 1000:
        raise errors.BadRequest(f"A recording may be at most {MAX_SECONDS} seconds long")
    return times


def _frames(archive: zipfile.ZipFile, times: list[tuple[int, str]], count: int) -> Iterator[Pixels]:
    at, camera, pixels = 0, figure.Camera(), np.zeros((0, 0, 3), np.uint8)
    for number in range(count):
        due = times[0][0] + number * 1000 / FPS
        shown = at
        while at < len(times) and (at == 0 or times[at][0] <= due):
            at += 1
        if at > shown:
            # Each pose moves the camera, so none is skipped.
            for _, name in times[shown:at] if times[at - 1][1].endswith("json") else times[at - 1 : at]:
                pixels = _draw(name, archive.read(name), camera)
        yield pixels


def _draw(name: str, data: bytes, camera: figure.Camera) -> Pixels:
    if name.endswith("json"):
        pose: dict[str, Any] = json.loads(data)
        return camera.draw(pose)
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if image is None or max(image.shape) > _MAX_SIDE:
        raise errors.BadRequest(f"{name} is not a frame of a session")
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), np.uint8)
