"""Long recordings, and long or dense audio and transcripts of providers, are handled in bounded memory."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold.clients.openai import TranscriptionResult
from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.concurrency import fair_threads
from sixfold.engines import limited_process
from sixfold.engines.limited_process import LimitedProcesses
from sixfold.engines.providers import audio_io, speech_runs
from sixfold.engines.speech import files
from tests import loop_time

MIB = 2**20


def recording(path: Path, seconds: int) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(b"\0\x10\0\xf0" * (8_000 * seconds))
    return path


def _encode(target: str, source: str) -> tuple[float, int]:
    return audio_io.encode_here(target, source), files.RATE


def _join(target: str, source: str) -> tuple[float, int]:
    return audio_io.join_here(target, "mp3", 1.5, source, source)


@pytest.mark.parametrize(("work", "seconds"), [(_encode, 60.0), (_join, 80.26)], ids=["recording", "speech"])
def test_long_audio_is_decoded_in_pieces(
    tmp_path: Path, work: Callable[[str, str], tuple[float, int]], seconds: float
) -> None:
    target, source = str(tmp_path / "b.mp3"), str(recording(tmp_path / "a.wav", 60))
    # The first call imports modules.
    work(target, str(recording(tmp_path / "short.wav", 1)))
    tracemalloc.start()
    try:
        assert work(target, source) == (seconds, files.RATE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The samples of a minute have 3.7 MiB at 16 kHz, and 11 MiB at 48 kHz.
    assert peak < MIB


async def test_a_large_file_is_read_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    call = LimitedProcesses.call

    async def record(pool: LimitedProcesses, target: str, *arguments: Any) -> Any:
        calls.append(target)
        return await call(pool, target, *arguments)

    monkeypatch.setattr(LimitedProcesses, "call", record)
    for seconds in (1, 60):
        file = await audio_io.prepare_recording(recording(tmp_path / f"{seconds}.wav", seconds), tmp_path)
        assert file.seconds == seconds
    assert calls == ["sixfold.engines.providers.audio_io:encode_here"]
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF\0\0\0\0WAVE" + bytes(2 * MIB))
    with pytest.raises(UnusableInput):
        await audio_io.prepare_recording(broken, tmp_path)


async def test_waiting_recordings_occupy_no_threads_of_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fair_threads.use_for_loop()
    begun, release = threading.Semaphore(0), threading.Event()

    def wait(*_: Any) -> float:
        begun.release()
        assert release.wait(60)
        return 60.0

    monkeypatch.setattr(limited_process._ProcessCall, "run", wait)
    source = recording(tmp_path / "a.wav", 60)
    try:
        async with asyncio.TaskGroup() as group, asyncio.timeout(60):
            for _ in range(12):
                group.create_task(audio_io.prepare_recording(source, tmp_path))
            for _ in range(2):
                await asyncio.to_thread(begun.acquire)
            # Twelve runs wait, and two of them have a process.
            assert await asyncio.to_thread(begun.acquire, blocking=False) is False
            release.set()
    finally:
        release.set()


def test_overlapping_segments_of_a_transcript_take_linear_time() -> None:
    rows = [{"start": 0, "end": 1e9, "text": "a"}] * 20_000
    words = [{"word": "a", "start": at, "end": at} for at in range(20_000)]
    response = TranscriptionResult("a", "en", rows, words)

    def read() -> None:
        segments = speech_runs._segments(response, 1.0)
        assert [len(segment.words) for segment in segments[:2]] == [20_000, 1]

    assert loop_time.cpu_seconds(read, 0.5) < 1
