"""Runs of a speech task at any provider: several calls whose audio is joined, or a transcript."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.clients.openai import TranscriptionResult
from sixfold.core.catalog.engines import Artifact, EngineError, Result, Task, UnusableInput
from sixfold.engines.providers.model_table import ModelRoute, UsedInputs
from sixfold.engines.providers.provider import ProviderRun
from sixfold.engines.speech import files, synthesis, transcription, voices
from sixfold.engines.speech.transcription import TimedSegment, TimedWord

Wave = NDArray[np.float32]

_PAUSE_SECONDS = 0.26  # the pause between the audio of two calls
# The maximum pause between two words of a segment, and the maximum length of a segment.
_SEGMENT_PAUSE_SECONDS, _MAX_SEGMENT_SECONDS = 0.6, 25.0


class Recording(msgspec.Struct, frozen=True):
    """A recording ready for upload: encoded again, without the metadata of its file."""

    data: bytes
    seconds: float
    content_type: str = "audio/mpeg"
    name: str = "recording.mp3"

    def data_uri(self) -> str:
        """Return the recording as a base64 `data:` URI."""
        return f"data:{self.content_type};base64,{base64.b64encode(self.data).decode('ascii')}"


Report = Callable[[float], None]
Speak = Callable[[Mapping[str, Any], Report], Awaitable[bytes]]
"""Make one call with the model's inputs; returns an audio file."""

Transcribe = Callable[[Recording, str, Report], Awaitable[tuple[TranscriptionResult, UsedInputs]]]
"""Make one call for a recording; the string is its language code, or empty if the language is unknown."""


async def synthesize(task: Task, route: ModelRoute, speak: Speak, run: ProviderRun) -> Result:
    """Return one audio file in the requested format; a long text needs several calls of `speak`."""
    request = synthesis.parse(task)
    if request.language and request.language not in route.values.get("language", {}):
        run.context.log(f"{run.title} detects the language itself: language is left out")
    provider_speed, tempo = _speeds(route, request.speed)
    texts = _texts(request.sentences, route.max_per_call)
    waves: list[Wave] = []
    async with run.time_limit():
        for number, text in enumerate(texts):
            report = _reporter(run, 0.02 + 0.9 * number / len(texts), 0.9 / len(texts))
            audio = await speak(_inputs(route, request, text, provider_speed), report)
            path = run.context.scratch / "upstream.wav"
            waves.append(await asyncio.to_thread(_wave, audio, path, run.title, tempo))
    run.context.progress(0.95)
    artifact = await asyncio.to_thread(_write, waves, request.format, run.context.scratch)
    data = {"voice": request.voice.id, "duration": artifact.info["duration"], **_provider_info(route)}
    cost = route.cost.micros(UsedInputs(characters=sum(map(len, texts)), seconds=data["duration"]))
    return Result((artifact,), data, "full", cost)


async def transcribe(task: Task, route: ModelRoute, call: Transcribe, run: ProviderRun) -> Result:
    """Return the text of a recording, with the segments and words whose times the provider reports."""
    wave = await asyncio.to_thread(transcription.load_audio, task)
    run.context.progress(0.05)
    recording = await asyncio.to_thread(_recording, wave, run.context.scratch)
    hint = str(task.inputs.get("language") or "").partition("-")[0].lower()
    code = "" if hint in ("", "auto") else _language_code(hint)
    report = _reporter(run, 0.1, 0.85)
    async with run.time_limit():
        response, used = await call(recording, code, report)
    run.context.progress(1.0)
    segments = _segments(response, wave.size / transcription.RATE)
    result = transcription.result(segments, wave, task, "full", _language_code(response.language or hint))
    cost = route.cost.micros(used)
    return msgspec.structs.replace(
        result, data={**result.data, **_provider_info(route)}, upstream_cost_micros=cost
    )


def _reporter(run: ProviderRun, begin: float, share: float) -> Report:
    """Return a callback that reports a call's progress; it raises `Canceled` when the run is canceled."""
    run.context.progress(begin)
    return lambda done: run.context.progress(begin + share * done)


async def download(address: Any, run: ProviderRun) -> bytes:
    """Return the audio file at a URL that a provider returned."""
    if not isinstance(address, str):
        raise EngineError(f"{run.title} did not return audio; try again.")
    path = run.context.scratch / "fetched"
    await run.outside.download(address, path, max_bytes=run.limits.file_bytes)
    audio = await asyncio.to_thread(path.read_bytes)
    path.unlink()
    return audio


# -- synthesis ---------------------------------------------------------------------------------------


def _inputs(route: ModelRoute, request: synthesis.SpeechRequest, text: str, speed: float) -> dict[str, Any]:
    """Return the model's inputs; a field name with a dot stands for a member of another input."""
    values = {
        "prompt": text,
        "voice": route.voices[request.voice.id],
        "speed": speed if speed != 1 else None,
        "language": route.values.get("language", {}).get(request.language),
    }
    inputs: dict[str, Any] = {}
    for ours, theirs in route.fields.items():
        if values[ours] is not None:
            parent, _, name = theirs.rpartition(".")
            (inputs.setdefault(parent, {}) if parent else inputs)[name] = values[ours]
    for name, value in route.fixed.items():
        inputs[name] = {**inputs.get(name, {}), **value} if isinstance(value, dict) else value
    return inputs


def _speeds(route: ModelRoute, speed: float) -> tuple[float, float]:
    """Return the speed to request from the provider, and the tempo to apply to its audio here."""
    provider_speed = min(max(speed, route.speeds[0]), route.speeds[1]) if route.speeds else speed
    return provider_speed, speed / provider_speed


def _texts(sentences: Sequence[str], max_chars: int) -> list[str]:
    """Join sentences into texts of at most `max_chars` characters; a longer sentence remains one text."""
    texts = [sentences[0]]
    for sentence in sentences[1:]:
        if len(texts[-1]) + len(sentence) < max_chars:
            texts[-1] += f" {sentence}"
        else:
            texts.append(sentence)
    return texts


def _wave(audio: bytes, path: Path, title: str, tempo: float) -> Wave:
    path.write_bytes(audio)
    try:
        wave = files.read(path, files.RATE)
    except UnusableInput as error:
        raise EngineError(f"{title} returned audio that cannot be read; try again.") from error
    finally:
        path.unlink()
    if tempo == 1:
        return wave
    # Imported here, because only a change of tempo needs OpenCV.
    from sixfold.engines.video import decoder

    return np.concatenate([piece[0] for piece in decoder.change_tempo(iter([np.stack([wave, wave])]), tempo)])


def _write(waves: Sequence[Wave], format_: str, folder: Path) -> Artifact:
    def pieces() -> Iterator[Wave]:
        for number, wave in enumerate(waves):
            if number:
                yield np.zeros(round(_PAUSE_SECONDS * files.RATE), np.float32)
            yield wave

    return files.write(pieces(), files.RATE, format_, folder / f"speech.{format_}")


# -- transcription -----------------------------------------------------------------------------------


def _recording(wave: Wave, folder: Path) -> Recording:
    artifact = files.write(iter([wave]), transcription.RATE, "mp3", folder / "recording.mp3")
    assert artifact.path is not None  # noqa: S101 - `files.write` has just written it
    return Recording(artifact.path.read_bytes(), wave.size / transcription.RATE)


def _segments(response: TranscriptionResult, seconds: float) -> list[TimedSegment]:
    """Return the provider's segments, else words grouped by pauses, else one segment for the whole text."""
    words = [TimedWord(str(row.get("word") or "").strip(), *_times(row), 0.0) for row in response.words]
    if response.segments:
        return [_segment(row, words) for row in response.segments]
    if words:
        return [_joined(group) for group in _groups(words)]
    return [TimedSegment(response.text, 0.0, seconds, [])] if response.text else []


def _groups(words: Sequence[TimedWord]) -> list[list[TimedWord]]:
    groups: list[list[TimedWord]] = []
    for word in words:
        near = groups and word.start - groups[-1][-1].end < _SEGMENT_PAUSE_SECONDS
        if near and word.end - groups[-1][0].start < _MAX_SEGMENT_SECONDS:
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _joined(words: Sequence[TimedWord]) -> TimedSegment:
    return TimedSegment(" ".join(word.word for word in words), words[0].start, words[-1].end, words)


def _segment(row: Any, words: Sequence[TimedWord]) -> TimedSegment:
    start, end = _times(row)
    confidence = math.exp(min(0.0, _number(row.get("avg_logprob")))) if "avg_logprob" in row else 0.0
    text = str(row.get("text") or "").strip()
    inside = [
        msgspec.structs.replace(word, confidence=confidence) for word in words if start <= word.start < end
    ]
    return TimedSegment(text, start, end, inside or [TimedWord(text, start, end, confidence)])


def _times(row: Any) -> tuple[float, float]:
    start = max(0.0, _number(row.get("start")))
    return start, max(start, _number(row.get("end")))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _language_code(name: str) -> str:
    """Return the code for a language's English name, which OpenAI reports, or an unknown name unchanged."""
    try:
        return voices.language(name)
    except UnusableInput:
        return name


def _provider_info(route: ModelRoute) -> dict[str, str]:
    return {"provider": route.provider, "provider_model": route.model}
