"""Short videos and audio files for tests, and a reader of the results."""

from __future__ import annotations

import asyncio
import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video import encode
from tests.api.app_fixture import AppFixture

Array = NDArray[Any]


def write_video(
    path: Path,
    color: tuple[int, int, int] = (200, 40, 40),
    size: tuple[int, int] = (64, 48),
    frames: int = 10,
    rate: int = 10,
    tone: float = 0.0,
) -> bytes:
    sound = encode.AudioSource.of(wave(frames / rate, tone)) if tone else None
    with encode.VideoEncoder(path, size, Fraction(rate), sound) as result:
        for _ in range(frames):
            result.add(np.full((size[1], size[0], 3), color, np.uint8))
    return path.read_bytes()


def wave(seconds: float, tone: float, loud: float = 0.5) -> Array:
    """Return a stereo tone at 48 kHz."""
    time = np.arange(round(seconds * encode.AUDIO_RATE)) / encode.AUDIO_RATE
    return np.repeat(loud * np.sin(2 * np.pi * tone * time)[None], 2, axis=0).astype(np.float32)


def wav(seconds: float, tone: float, loud: float = 0.5, rate: int = 48_000, channels: int = 2) -> bytes:
    """Return a tone as a WAV file, optionally with another rate or fewer channels."""
    file = io.BytesIO()
    time = np.arange(round(seconds * rate)) / rate
    samples = np.repeat(loud * np.sin(2 * np.pi * tone * time)[:, None], channels, axis=1)
    data = (samples * 32767).astype("<i2").tobytes()
    header = np.array([16, 1 | channels << 16, rate, rate * 2 * channels, 2 * channels | 16 << 16], "<u4")
    file.write(b"RIFF" + np.uint32(36 + len(data)).tobytes() + b"WAVEfmt " + header.tobytes())
    file.write(b"data" + np.uint32(len(data)).tobytes() + data)
    return file.getvalue()


async def upload(app: AppFixture, data: bytes) -> str:
    """Upload a file and return its URL."""
    response = await app.client.post("/api/uploads", content=data, headers=app.bearer)
    assert response.status_code == 201, response.text
    return str(response.json()["url"])


async def finished_job(app: AppFixture, status_url: str) -> dict[str, Any]:
    """Wait until a job has ended, and return its status."""
    async with asyncio.timeout(60):
        while True:
            body: dict[str, Any] = (await app.client.get(status_url)).json()
            if body["status"] != "in_progress":
                return body
            await asyncio.sleep(0.02)


class DecodedVideo:
    """Decoded video with its audio."""

    def __init__(self, data: bytes) -> None:
        with av.open(io.BytesIO(data), "r") as container:
            self.codecs = {stream.type: stream.codec_context.name for stream in container.streams}
            video = container.streams.video[0]
            self.size = (video.width, video.height)
            self.rate = float(video.average_rate or 0)
            self.pixels = str(video.pix_fmt)
            self.frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video)]
        self.sound: Array = np.zeros((2, 0), np.float32)
        if "audio" in self.codecs:
            with av.open(io.BytesIO(data), "r") as container:
                flat = av.AudioResampler(format="fltp", layout="stereo", rate=48_000)
                parts = [
                    part.to_ndarray() for frame in container.decode(audio=0) for part in flat.resample(frame)
                ]
            self.sound = np.concatenate(parts, axis=1)

    def at(self, second: float) -> Array:
        """Return the frame at a time in seconds."""
        return self.frames[min(len(self.frames) - 1, int(second * self.rate))]

    def color(self, second: float, x: int, y: int) -> tuple[int, int, int]:
        """Return the mean color of a small region at a time in seconds."""
        part = self.at(second)[y - 1 : y + 2, x - 1 : x + 2].reshape(-1, 3).mean(0)
        red, green, blue = (round(float(value)) for value in part)
        return red, green, blue

    def loudness(self, begin: float, end: float) -> float:
        """Return the root mean square of the audio between two times."""
        part = self.sound[:, round(begin * 48_000) : round(end * 48_000)]
        return float(np.sqrt((part * part).mean())) if part.size else 0.0

    def pitch(self, begin: float, end: float) -> float:
        """Return the dominant frequency between two times, in Hz."""
        part = self.sound[0, round(begin * 48_000) : round(end * 48_000)]
        spectrum = np.abs(np.fft.rfft(part * np.hanning(part.size)))
        return float(spectrum.argmax() * 48_000 / part.size)


def near(actual: tuple[int, int, int], expected: tuple[int, int, int], reach: int = 14) -> bool:
    """Return whether two colors are nearly equal."""
    return max(abs(a - b) for a, b in zip(actual, expected, strict=True)) <= reach
