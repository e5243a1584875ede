"""Speaking and listening at OpenAI, and at servers that speak like it: our voices and files, its models."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy import float32, zeros
from numpy.typing import NDArray

from sixfold.core.work.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.engines.remote.provider import ProviderEngine
from sixfold.engines.remote.routes import Used
from sixfold.engines.speech import files, hearing, speaking, voices
from sixfold.engines.speech.hearing import Segment, Word
from sixfold.upstreams.openai import OPENAI, Heard, OpenAI

Wave = NDArray[float32]

_PAUSE_SECONDS = 0.26  # between what two calls said


class OpenAISpeech(ProviderEngine):
    """Says a text with the voices of `POST /audio/speech`."""

    provider = OPENAI
    setting = "openai_api_key"

    async def run(self, task: Task, context: Context) -> Result:
        """One file of sound in the format asked for, a long text in several calls."""
        wanted = speaking.order(task)
        if wanted.language:
            context.log(f"{OPENAI.title} hears the language in the text itself: language is left out")
        openai = OpenAI(self._calls())
        texts = _texts(wanted.sentences, self._route.most)
        waves: list[Wave] = []
        try:
            async with asyncio.timeout(self._limits.whole_seconds):
                for number, text in enumerate(texts):
                    context.progress(0.02 + 0.9 * number / len(texts))
                    spoken = await openai.speak(self._fields(wanted, text))
                    waves.append(await asyncio.to_thread(_wave, spoken, context.scratch / "upstream.wav"))
        except TimeoutError:
            raise _late(self._limits.whole_seconds) from None
        context.progress(0.95)
        artifact = await asyncio.to_thread(_written, waves, wanted.format, context.scratch)
        data = {"voice": wanted.voice.id, "duration": artifact.info["duration"], **_served(self._route.model)}
        cost = self._route.price.micros(Used(characters=sum(map(len, texts)), seconds=data["duration"]))
        return Result((artifact,), data, "full", cost)

    def _fields(self, wanted: speaking.Order, text: str) -> dict[str, Any]:
        words = self._route.fields
        said: dict[str, Any] = {words["prompt"]: text, words["voice"]: self._route.voices[wanted.voice.id]}
        if wanted.speed != 1:
            said[words["speed"]] = wanted.speed
        return {"model": self._route.model, **said, **self._route.fixed}


class OpenAIListening(ProviderEngine):
    """Writes down `audio_url` by `POST /audio/transcriptions`."""

    provider = OPENAI
    setting = "openai_api_key"

    async def run(self, task: Task, context: Context) -> Result:
        """The text, and its segments and words as far as the server tells their times."""
        wave = await asyncio.to_thread(hearing.sound, task)
        context.progress(0.05)
        recording = await asyncio.to_thread(_recording, wave, context.scratch)
        fields: dict[str, str | list[str]] = {"model": self._route.model, **self._route.fixed}
        if fields.get("response_format") == "verbose_json":
            fields["timestamp_granularities[]"] = ["segment", "word"]
        hint = str(task.inputs.get("language") or "").partition("-")[0].lower()
        if hint not in ("", "auto"):
            fields["language"] = _code(hint)
        context.progress(0.1)
        try:
            async with asyncio.timeout(self._limits.whole_seconds):
                heard = await OpenAI(self._calls()).listen(fields, ("recording.mp3", recording, "audio/mpeg"))
        except TimeoutError:
            raise _late(self._limits.whole_seconds) from None
        context.progress(1.0)
        seconds = wave.size / hearing.RATE
        told = hearing.told(_segments(heard, seconds), wave, task, "full", _code(heard.language or hint))
        return dataclasses.replace(
            told,
            data={**told.data, **_served(self._route.model)},
            upstream_cost_micros=self._route.price.micros(Used(seconds=seconds)),
        )


# -- a text, and the sound of it ---------------------------------------------------------------------


def _texts(sentences: Sequence[str], most: int) -> list[str]:
    """The sentences, as many in one text as a call takes."""
    texts = [sentences[0]]
    for sentence in sentences[1:]:
        if len(texts[-1]) + len(sentence) < most:
            texts[-1] += f" {sentence}"
        else:
            texts.append(sentence)
    return texts


def _wave(spoken: bytes, path: Path) -> Wave:
    path.write_bytes(spoken)
    try:
        return files.read(path, files.RATE)
    except UnusableInput as error:
        raise EngineError(f"{OPENAI.title} gave a sound that cannot be read; try again.") from error
    finally:
        path.unlink()


def _written(waves: Sequence[Wave], name: str, folder: Path) -> Artifact:
    def pieces() -> Iterator[Wave]:
        for number, wave in enumerate(waves):
            if number:
                yield zeros(round(_PAUSE_SECONDS * files.RATE), float32)
            yield wave

    return files.write(pieces(), files.RATE, name, folder / f"speech.{name}")


# -- a recording, and what was heard in it -----------------------------------------------------------


def _recording(wave: Wave, folder: Path) -> bytes:
    """The recording made anew: what its file says beside the sound stays here, and it is small enough."""
    made = files.write(iter([wave]), hearing.RATE, "mp3", folder / "recording.mp3")
    assert made.path is not None  # noqa: S101 - it was written there
    return made.path.read_bytes()


def _segments(heard: Heard, seconds: float) -> list[Segment]:
    """Segments with their words; a server that tells no times gives one, of which nothing is sure."""
    words = [Word(str(one.get("word") or "").strip(), *_times(one), 0.0) for one in heard.words]
    if not heard.segments:
        return [Segment(heard.text, 0.0, seconds, words)] if heard.text else []
    return [_segment(one, words) for one in heard.segments]


def _segment(row: Any, words: Sequence[Word]) -> Segment:
    start, end = _times(row)
    sure = math.exp(min(0.0, _number(row.get("avg_logprob")))) if "avg_logprob" in row else 0.0
    text = str(row.get("text") or "").strip()
    inside = [dataclasses.replace(word, confidence=sure) for word in words if start <= word.start < end]
    return Segment(text, start, end, inside or [Word(text, start, end, sure)])


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


def _served(model: str) -> dict[str, str]:
    return {"provider": OPENAI.name, "provider_model": model}


def _late(seconds: float) -> EngineError:
    return EngineError(f"{OPENAI.title} did not finish within {seconds:g} seconds.")
