"""Speech at a provider, the same for all: what is asked, and one file or one transcript of the answers."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.clients.openai import TranscriptionResult
from sixfold.core.catalog.engines import Artifact, EngineError, Result, Task, UnusableInput
from sixfold.engines.providers.image_runs import RunContextImages
from sixfold.engines.providers.model_table import ModelRoute, UsedInputs
from sixfold.engines.speech import files, synthesis, transcription, voices
from sixfold.engines.speech.transcription import TimedSegment, TimedWord
from sixfold.engines.video import decoder

Wave = NDArray[np.float32]

_PAUSE_SECONDS = 0.26  # between what two calls said
_PARTED_SECONDS, _LONGEST_SECONDS = 0.6, 25.0  # words that belong to one segment


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording made anew as it leaves: what its file says beside the sound stays here, and it is small."""

    data: bytes
    seconds: float
    content_type: str = "audio/mpeg"
    name: str = "recording.mp3"

    def data_uri(self) -> str:
        """The recording as text that a JSON document can carry."""
        return f"data:{self.content_type};base64,{base64.b64encode(self.data).decode('ascii')}"


Report = Callable[[float], None]
Say = Callable[[Mapping[str, Any], Report], Awaitable[bytes]]
"""One call: its inputs, how far it is; and the file of sound that came of them."""

Listen = Callable[[Recording, str, Report], Awaitable[tuple[TranscriptionResult, UsedInputs]]]
"""One call: a recording, the code of its language or none; what was heard, and what that took."""


async def spoken(task: Task, route: ModelRoute, say: Say, desk: RunContextImages) -> Result:
    """One file of sound in the format asked for, a long text in several calls."""
    wanted = synthesis.order(task)
    if wanted.language and wanted.language not in route.values.get("language", {}):
        desk.context.log(f"{desk.title} hears the language in the text itself: language is left out")
    asked, rest = _speed(route, wanted.speed)
    texts = _texts(wanted.sentences, route.most)
    waves: list[Wave] = []
    try:
        async with asyncio.timeout(desk.limits.whole_seconds):
            for number, text in enumerate(texts):
                report = _stretch(desk, 0.02 + 0.9 * number / len(texts), 0.9 / len(texts))
                said = await say(_inputs(route, wanted, text, asked), report)
                path = desk.context.scratch / "upstream.wav"
                waves.append(await asyncio.to_thread(_wave, said, path, desk.title, rest))
    except TimeoutError:
        raise _late(desk) from None
    desk.context.progress(0.95)
    artifact = await asyncio.to_thread(_written, waves, wanted.format, desk.context.scratch)
    data = {"voice": wanted.voice.id, "duration": artifact.info["duration"], **_served(route)}
    cost = route.price.micros(UsedInputs(characters=sum(map(len, texts)), seconds=data["duration"]))
    return Result((artifact,), data, "full", cost)


async def heard(task: Task, route: ModelRoute, listen: Listen, desk: RunContextImages) -> Result:
    """The text, and its segments and words as far as the provider tells their times."""
    wave = await asyncio.to_thread(transcription.sound, task)
    desk.context.progress(0.05)
    recording = await asyncio.to_thread(_recording, wave, desk.context.scratch)
    hint = str(task.inputs.get("language") or "").partition("-")[0].lower()
    code = "" if hint in ("", "auto") else _code(hint)
    report = _stretch(desk, 0.1, 0.85)
    try:
        async with asyncio.timeout(desk.limits.whole_seconds):
            found, used = await listen(recording, code, report)
    except TimeoutError:
        raise _late(desk) from None
    desk.context.progress(1.0)
    segments = _segments(found, wave.size / transcription.RATE)
    told = transcription.told(segments, wave, task, "full", _code(found.language or hint))
    cost = route.price.micros(used)
    return dataclasses.replace(told, data={**told.data, **_served(route)}, upstream_cost_micros=cost)


def _stretch(desk: RunContextImages, begin: float, share: float) -> Report:
    """Tells how far one call is, from now on; raises `Canceled` when it is not wanted any more."""
    desk.context.progress(begin)
    return lambda done: desk.context.progress(begin + share * done)


async def fetched(address: Any, desk: RunContextImages) -> bytes:
    """The file of sound at an address that a provider named."""
    if not isinstance(address, str):
        raise EngineError(f"{desk.title} gave an answer without a sound; try again.")
    path = desk.context.scratch / "fetched"
    await desk.outside.download(address, path, max_bytes=desk.limits.file_bytes)
    said = await asyncio.to_thread(path.read_bytes)
    path.unlink()
    return said


# -- a text, and the sound of it ---------------------------------------------------------------------


def _inputs(route: ModelRoute, wanted: synthesis.SpeechRequest, text: str, speed: float) -> dict[str, Any]:
    """The model's inputs; a word of it with a dot lies within another."""
    values = {
        "prompt": text,
        "voice": route.voices[wanted.voice.id],
        "speed": speed if speed != 1 else None,
        "language": route.values.get("language", {}).get(wanted.language),
    }
    said: dict[str, Any] = {}
    for ours, theirs in route.fields.items():
        if values[ours] is not None:
            folder, _, name = theirs.rpartition(".")
            (said.setdefault(folder, {}) if folder else said)[name] = values[ours]
    for name, value in route.fixed.items():
        said[name] = {**said.get(name, {}), **value} if isinstance(value, dict) else value
    return said


def _speed(route: ModelRoute, speed: float) -> tuple[float, float]:
    """The speed to ask for, and by how much what was said is quickened here."""
    asked = min(max(speed, route.speeds[0]), route.speeds[1]) if route.speeds else speed
    return asked, speed / asked


def _texts(sentences: Sequence[str], most: int) -> list[str]:
    """The sentences, as many in one text as a call takes."""
    texts = [sentences[0]]
    for sentence in sentences[1:]:
        if len(texts[-1]) + len(sentence) < most:
            texts[-1] += f" {sentence}"
        else:
            texts.append(sentence)
    return texts


def _wave(said: bytes, path: Path, title: str, speed: float) -> Wave:
    path.write_bytes(said)
    try:
        wave = files.read(path, files.RATE)
    except UnusableInput as error:
        raise EngineError(f"{title} gave a sound that cannot be read; try again.") from error
    finally:
        path.unlink()
    if speed == 1:
        return wave
    return np.concatenate([piece[0] for piece in decoder.change_tempo(iter([np.stack([wave, wave])]), speed)])


def _written(waves: Sequence[Wave], name: str, folder: Path) -> Artifact:
    def pieces() -> Iterator[Wave]:
        for number, wave in enumerate(waves):
            if number:
                yield np.zeros(round(_PAUSE_SECONDS * files.RATE), np.float32)
            yield wave

    return files.write(pieces(), files.RATE, name, folder / f"speech.{name}")


# -- a recording, and what was heard in it -----------------------------------------------------------


def _recording(wave: Wave, folder: Path) -> Recording:
    made = files.write(iter([wave]), transcription.RATE, "mp3", folder / "recording.mp3")
    assert made.path is not None  # noqa: S101 - it was written there
    return Recording(made.path.read_bytes(), wave.size / transcription.RATE)


def _segments(found: TranscriptionResult, seconds: float) -> list[TimedSegment]:
    """Segments with their words; of words alone, those between two pauses; without times, one for all."""
    words = [TimedWord(str(one.get("word") or "").strip(), *_times(one), 0.0) for one in found.words]
    if found.segments:
        return [_segment(one, words) for one in found.segments]
    if words:
        return [_together(part) for part in _parted(words)]
    return [TimedSegment(found.text, 0.0, seconds, [])] if found.text else []


def _parted(words: Sequence[TimedWord]) -> list[list[TimedWord]]:
    parts: list[list[TimedWord]] = []
    for word in words:
        near = parts and word.start - parts[-1][-1].end < _PARTED_SECONDS
        if near and word.end - parts[-1][0].start < _LONGEST_SECONDS:
            parts[-1].append(word)
        else:
            parts.append([word])
    return parts


def _together(words: Sequence[TimedWord]) -> TimedSegment:
    return TimedSegment(" ".join(word.word for word in words), words[0].start, words[-1].end, words)


def _segment(row: Any, words: Sequence[TimedWord]) -> TimedSegment:
    start, end = _times(row)
    sure = math.exp(min(0.0, _number(row.get("avg_logprob")))) if "avg_logprob" in row else 0.0
    text = str(row.get("text") or "").strip()
    inside = [dataclasses.replace(word, confidence=sure) for word in words if start <= word.start < end]
    return TimedSegment(text, start, end, inside or [TimedWord(text, start, end, sure)])


def _times(row: Any) -> tuple[float, float]:
    start = max(0.0, _number(row.get("start")))
    return start, max(start, _number(row.get("end")))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _code(name: str) -> str:
    """A language's code, where its name is one that we know: OpenAI says `english`."""
    try:
        return voices.language(name)
    except UnusableInput:
        return name


def _served(route: ModelRoute) -> dict[str, str]:
    return {"provider": route.provider, "provider_model": route.model}


def _late(desk: RunContextImages) -> EngineError:
    return EngineError(f"{desk.title} did not finish within {desk.limits.whole_seconds:g} seconds.")
