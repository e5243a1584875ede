"""Runs of a speech task at any provider: several calls whose audio is joined, or a transcript."""

from __future__ import annotations

import asyncio
import base64
import bisect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sixfold.clients.openai import TranscriptionResult
from sixfold.core.catalog.engines import EngineError, Result, Task, UnusableInput
from sixfold.engines.providers import audio_io
from sixfold.engines.providers.model_table import ModelRoute, UsedInputs
from sixfold.engines.providers.provider import ProviderRun
from sixfold.engines.speech import synthesis, transcription, voices
from sixfold.engines.speech.transcription import TimedSegment, TimedWord

# Characters of a transcript and its words; half an hour of speech has 30,000.
_MAX_CHARS = 1_000_000
# Segments and words of a transcript, and characters of its language; half an hour has 6,000 words.
_MAX_TIMES, _MAX_LANGUAGE_CHARS = 20_000, 100
_MAX_NUMBER = 10**9
# A recording, its base64 and the body of the request.
_RECORDING_COPIES = 4
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
Speak = Callable[[Mapping[str, Any], Path, Report], Awaitable[None]]
"""Make one call with the model's inputs, and write the audio file to the path."""

Transcribe = Callable[[Recording, str, Report], Awaitable[tuple[TranscriptionResult, UsedInputs]]]
"""Make one call for a recording; the string is its language code, or empty if the language is unknown."""


async def synthesize(task: Task, route: ModelRoute, speak: Speak, run: ProviderRun) -> Result:
    """Return one audio file in the requested format; a long text needs several calls of `speak`."""
    request = synthesis.parse(task)
    if request.language and request.language not in route.values.get("language", {}):
        run.context.log(f"{run.title} detects the language itself: language is left out")
    provider_speed, tempo = _speeds(route, request.speed)
    texts = _texts(request.sentences, route.max_per_call)
    paths = [run.context.scratch / f"upstream-{number}" for number in range(len(texts))]
    async with run.time_limit():
        for number, (text, path) in enumerate(zip(texts, paths, strict=True)):
            report = _reporter(run, 0.02 + 0.9 * number / len(texts), 0.9 / len(texts))
            await speak(_inputs(route, request, text, provider_speed), path, report)
    run.context.progress(0.95)
    artifact = await audio_io.join_speech(paths, tempo, request.format, run.context.scratch, run.title)
    data = {"voice": request.voice.id, "duration": artifact.info["duration"], **_provider_info(route)}
    cost = route.cost.micros(UsedInputs(characters=sum(map(len, texts)), seconds=data["duration"]))
    return Result((artifact,), data, "full", cost)


async def transcribe(task: Task, route: ModelRoute, call: Transcribe, run: ProviderRun) -> Result:
    """Return the text of a recording, with the segments and words whose times the provider reports."""
    source = transcription.recording(task)
    file = await audio_io.prepare_recording(source, run.context.scratch)
    run.context.progress(0.05)
    await run.memory.hold(_RECORDING_COPIES * file.path.stat().st_size)
    recording = Recording(await asyncio.to_thread(file.path.read_bytes), file.seconds)
    hint = str(task.inputs.get("language") or "").partition("-")[0].lower()
    code = "" if hint in ("", "auto") else _language_code(hint)
    report = _reporter(run, 0.1, 0.85)
    async with run.time_limit():
        response, used = await call(recording, code, report)
    run.context.progress(1.0)
    times = len(response.segments) + len(response.words)
    if times > _MAX_TIMES:
        raise EngineError(
            f"{run.title} returned a transcript of more than {_MAX_TIMES:,} segments and words (got {times})."
        )
    segments = await asyncio.to_thread(_segments, response, file.seconds)
    if (
        sum(len(segment.text) + sum(len(word.word) for word in segment.words) for segment in segments)
        > _MAX_CHARS
    ):
        raise EngineError(f"{run.title} returned a transcript of more than {_MAX_CHARS:,} characters.")
    language = _language_code((response.language or hint)[:_MAX_LANGUAGE_CHARS])
    result = await asyncio.to_thread(transcription.result, segments, file.seconds, task, "full", language)
    cost = route.cost.micros(used)
    return msgspec.structs.replace(
        result, data={**result.data, **_provider_info(route)}, upstream_cost_micros=cost
    )


def _reporter(run: ProviderRun, begin: float, share: float) -> Report:
    """Return a callback that reports a call's progress; it raises `Canceled` when the run is canceled."""
    run.context.progress(begin)
    return lambda done: run.context.progress(begin + share * done)


async def download(address: Any, path: Path, run: ProviderRun) -> None:
    """Write the audio file at a URL that a provider returned."""
    if not isinstance(address, str):
        raise EngineError(f"{run.title} did not return audio: try again.")
    await run.outside.download(address, path, max_bytes=run.limits.file_bytes)


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


# -- transcription -----------------------------------------------------------------------------------


def _segments(response: TranscriptionResult, seconds: float) -> list[TimedSegment]:
    """Return the provider's segments, else words grouped by pauses, else one segment for the whole text."""
    words = [TimedWord(str(row.get("word") or "").strip(), *_times(row), 0.0) for row in response.words]
    if response.segments:
        words.sort(key=lambda word: word.start)
        starts, segments, used = [word.start for word in words], list[TimedSegment](), 0
        for row in response.segments:
            start, end = _times(row)
            # Each word is in one segment, also if segments overlap.
            first = max(used, bisect.bisect_left(starts, start))
            used = max(used, bisect.bisect_left(starts, end))
            segments.append(_segment(row, start, end, words[first:used]))
        return segments
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


def _segment(row: Any, start: float, end: float, words: Sequence[TimedWord]) -> TimedSegment:
    confidence = math.exp(min(0.0, _number(row.get("avg_logprob")))) if "avg_logprob" in row else 0.0
    text = str(row.get("text") or "").strip()
    inside = [msgspec.structs.replace(word, confidence=confidence) for word in words]
    return TimedSegment(text, start, end, inside or [TimedWord(text, start, end, confidence)])


def _times(row: Any) -> tuple[float, float]:
    start = max(0.0, _number(row.get("start")))
    return start, max(start, _number(row.get("end")))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) <= _MAX_NUMBER else 0.0


def _language_code(name: str) -> str:
    """Return the code for a language's English name, which OpenAI reports, or an unknown name unchanged."""
    try:
        return voices.language(name)
    except UnusableInput:
        return name


def _provider_info(route: ModelRoute) -> dict[str, str]:
    return {"provider": route.provider, "provider_model": route.model}
