"""Sound: texts spoken, and recordings written down.

Source: https://platform.openai.com/docs/api-reference/audio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sixfold.api.gateway.openai import media_jobs, passthrough
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRunner
from sixfold.api.gateway.openai.passthrough import EVENTS, ForwardedCall, UpstreamPassthrough
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import tokens_of
from sixfold.core.gateway.usage import TokenUsage, Units
from sixfold.web import bodies, responses

SPEECH, LISTENING = "tts", "stt"
# How sound is asked for, and what it is called on its way; `pcm` is raw: 24 kHz, 16 bits, mono.
FORMATS = {
    "mp3": "audio/mpeg", "opus": "audio/ogg", "wav": "audio/wav",
    "flac": "audio/flac", "aac": "audio/aac", "pcm": "audio/pcm",
}  # fmt: skip
_TEXTS = frozenset({"text", "srt", "vtt"})
_WORDS = {"prompt": "input", "format": "response_format"}  # what clients call our inputs
_CHARS_A_SECOND, _TOKENS_A_SECOND, _TOKENS_HEARD = 15, 20.8, 10  # of speech, about
_BYTES_A_SECOND = 16_000  # of a recording that does not say how long it is
# Voices by which clients know others, and the one of ours that stands in for each.
VOICES = {
    "alloy": "ava", "ash": "ben", "ballad": "dan", "cedar": "jack", "coral": "chloe", "echo": "finn",
    "fable": "henry", "marin": "isla", "nova": "ella", "onyx": "jack", "sage": "grace", "shimmer": "isla",
    "verse": "finn",
}  # fmt: skip
_LANGUAGES = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian"}


class AudioRoutes:
    """`POST /v1/audio/speech` and `/v1/audio/transcriptions`."""

    def __init__(self, maker: MediaJobRunner, elsewhere: UpstreamPassthrough) -> None:
        self._maker = maker
        self._elsewhere = elsewhere

    async def speak(self, request: Request) -> Response:
        """The sound's bytes."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            body = await bodies.parse(bodies.parse_object, await request.body())
            if self._elsewhere.makes("speech", body.get("model")):
                passed = _spoken(body, await request.body())
                return await self._elsewhere.answer(request, principal, passed, idempotency_id)
            model = media_jobs.ours(SPEECH, body.get("model"))
            media_jobs.choice(body, "stream_format", ("audio",), "audio")
            inputs = {
                "prompt": media_jobs.text(body, "input"),
                "voice": _voice(body.get("voice")),
                "format": media_jobs.choice(body, "response_format", tuple(FORMATS), "mp3"),
                "speed": media_jobs.number(body, "speed", 1, 0.25, 4),
            }
            more: dict[str, Any] = {"idempotency_id": idempotency_id, "words": _WORDS}
            made = await self._maker.made(media_jobs.asked(request, principal, model, inputs, **more))
            (prediction,) = made.kept
            assert prediction.output is not None  # noqa: S101 - it succeeded
            kind = prediction.output.files[0].content_type
            headers = {**responses.result_headers(prediction), "Cache-Control": "no-store"}
            return Response(await self._maker.data(prediction), 200, headers, kind)

        return await self._maker.once(request, work)

    async def transcribe(self, request: Request) -> Response:
        """What is said in a recording, in the shape that is asked for."""

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            found = await bodies.fields(request)
            values, data = found.values, found.files.get("file")
            if data is not None and self._elsewhere.makes("transcriptions", values.get("model")):
                held = await self._maker.receive("file", "audio", data)
                passed = _heard(found, held.seconds or len(data) / _BYTES_A_SECOND)
                return await self._elsewhere.answer(request, principal, passed, idempotency_id)
            model = media_jobs.ours(LISTENING, values.get("model"))
            if data is None:
                raise InvalidRequest("file is required and must be a recording", param="file")
            media_jobs.refuse_stream(values)
            shape = media_jobs.choice(values, "response_format", tuple(SHAPES), "json")
            held = await self._maker.receive("file", "audio", data)
            inputs = {"audio_url": held.blob, "language": media_jobs.text(values, "language", "")}
            more: dict[str, Any] = {"sources": {"audio_url": held}, "idempotency_id": idempotency_id}
            made = await self._maker.made(media_jobs.asked(request, principal, model, inputs, **more))
            (prediction,) = made.kept
            heard = media_jobs.told(prediction, "text", "segments", "language", "duration")
            words = any(part[:2] == ("timestamp_granularities[]", b"word") for part in found.parts)
            told = SHAPES[shape](heard, words)
            headers = responses.result_headers(prediction)
            if isinstance(told, str):
                return PlainTextResponse(told, headers=headers)
            return responses.json(told, headers=headers)

        return await self._maker.once(request, work)


def _spoken(body: Mapping[str, Any], raw: bytes) -> ForwardedCall:
    """A text for a model server; its sound is passed on as it comes."""
    said = len(media_jobs.text(body, "input")) + len(media_jobs.text(body, "instructions", ""))
    seconds = said / _CHARS_A_SECOND
    out = math.ceil(seconds * _TOKENS_A_SECOND)
    most = TokenUsage(tokens_of(said), out, audio_out=out, units=Units(0, round(1000 * seconds), said))
    wanted = body.get("response_format") or "mp3"
    kind = EVENTS if body.get("stream_format") == "sse" else FORMATS.get(wanted, "application/octet-stream")
    return ForwardedCall("speech", SPEECH, body["model"], raw, most, kind, stream=True)


def _heard(found: bodies.BodyFields, seconds: float) -> ForwardedCall:
    """A recording for a model server."""
    heard = math.ceil(seconds * _TOKENS_HEARD)
    words = tokens_of(round(seconds * _CHARS_A_SECOND))
    most = TokenUsage(heard, words, audio_in=heard, units=Units(0, round(1000 * seconds)))
    body, kind = passthrough.form(found.parts)
    stream = passthrough.is_stream(found.values)
    told = "text/plain" if found.values.get("response_format") in _TEXTS else "application/json"
    return ForwardedCall(
        "transcriptions",
        LISTENING,
        found.values["model"],
        body,
        most,
        EVENTS if stream else told,
        stream=stream,
        content_type=kind,
    )


def _voice(given: Any) -> str:
    named: Any = cast("Mapping[str, Any]", given).get("id") if isinstance(given, Mapping) else given
    if named is None:
        return "ava"
    if not isinstance(named, str):
        raise InvalidRequest("voice must be a string", param="voice")
    return VOICES.get(named, named)


# -- what was heard ----------------------------------------------------------------------------------


def _segments(heard: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return heard["segments"]


def _json(heard: Mapping[str, Any], _words: bool) -> Any:
    seconds = heard["duration"]
    return {"text": heard["text"], "usage": {"type": "duration", "seconds": round(seconds)}}


def _text(heard: Mapping[str, Any], _words: bool) -> Any:
    return heard["text"] + "\n"


def _verbose(heard: Mapping[str, Any], words: bool) -> Any:
    """All that is known; what this listener does not measure says so by 0."""
    seconds, code = heard["duration"], str(heard["language"])
    told: dict[str, Any] = {
        "task": "transcribe",
        "language": _LANGUAGES.get(code.partition("-")[0], code),
        "duration": seconds,
        "text": heard["text"],
        "segments": [
            {
                "id": number,
                "seek": round(each["start"] * 100),
                "start": each["start"],
                "end": each["end"],
                "text": each["text"],
                "tokens": [],
                "temperature": 0.0,
                "avg_logprob": 0.0,
                "compression_ratio": 0.0,
                "no_speech_prob": round(1 - each["confidence"], 3),
            }
            for number, each in enumerate(_segments(heard))
        ],
        "usage": {"type": "duration", "seconds": round(seconds)},
    }
    if words:
        said = [word for each in _segments(heard) for word in each.get("words", ())]
        told["words"] = [{name: word[name] for name in ("word", "start", "end")} for word in said]
    return told


def _srt(heard: Mapping[str, Any], _words: bool) -> str:
    return "".join(
        f"{number}\n{_clock(each['start'], ',')} --> {_clock(each['end'], ',')}\n{each['text']}\n\n"
        for number, each in enumerate(_segments(heard), 1)
    )


def _vtt(heard: Mapping[str, Any], _words: bool) -> str:
    return "WEBVTT\n\n" + "".join(
        f"{_clock(each['start'], '.')} --> {_clock(each['end'], '.')}\n{each['text']}\n\n"
        for each in _segments(heard)
    )


def _clock(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"


SHAPES: Mapping[str, Callable[[Mapping[str, Any], bool], Any]] = {
    "json": _json,
    "text": _text,
    "verbose_json": _verbose,
    "srt": _srt,
    "vtt": _vtt,
}
