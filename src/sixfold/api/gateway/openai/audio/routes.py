"""OpenAI's audio API: speech synthesis, transcription and translation.

Source: https://platform.openai.com/docs/api-reference/audio.
"""

from __future__ import annotations

import base64
import math
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sixfold.api.gateway.chat_handler import check_replay
from sixfold.api.gateway.openai import media_jobs, partial_results, passthrough
from sixfold.api.gateway.openai.audio.transcript_deltas import TranscriptDeltas
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRequest, MediaJobRunner
from sixfold.api.gateway.openai.partial_results import CompleteResult
from sixfold.api.gateway.openai.passthrough import EVENTS, ForwardedCall, UpstreamPassthrough
from sixfold.core.accounts.keys import Principal
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.chat import tokens_of
from sixfold.core.gateway.pricing.usage import TokenUsage, Units
from sixfold.core.predictions.events import PreviewCallback
from sixfold.core.predictions.models import Prediction
from sixfold.web import bodies, responses
from sixfold.web.bodies import FormPart
from sixfold.web.files import chained
from sixfold.web.idempotency import UncachedStream

SPEECH, TRANSCRIPTION = "tts", "stt"
# Audio formats and their content types; `pcm` is raw: 24 kHz, 16 bits, mono.
FORMATS = {
    "mp3": "audio/mpeg", "opus": "audio/ogg", "wav": "audio/wav",
    "flac": "audio/flac", "aac": "audio/aac", "pcm": "audio/pcm",
}  # fmt: skip
# The formats of transcripts that are sent as events, and the audio bytes of an event.
_STREAMED_FORMATS, _EVENT_BYTES = ("json", "text"), 48 * 1024
# Deltas of a transcript that wait for a slow client; later text is in the events at the end.
_MAX_WAITING_DELTAS = 1_000
_TEXTS = frozenset({"text", "srt", "vtt"})
# OpenAI's names of this server's inputs.
_INPUT_NAMES = {"prompt": "input", "format": "response_format"}
# Estimates per second of speech.
_CHARS_PER_SECOND, _SPOKEN_TOKENS_PER_SECOND, _HEARD_TOKENS_PER_SECOND = 15, 20.8, 10
# For recordings without a known duration.
_BYTES_PER_SECOND = 16_000
# A low bit rate of speech. It determines the maximum duration of a recording, which is held.
_MIN_BYTES_PER_SECOND = 4_000
# OpenAI's voices, and the voice that replaces each.
VOICES = {
    "alloy": "ava", "ash": "ben", "ballad": "dan", "cedar": "jack", "coral": "chloe", "echo": "finn",
    "fable": "henry", "marin": "isla", "nova": "ella", "onyx": "jack", "sage": "grace", "shimmer": "isla",
    "verse": "finn",
}  # fmt: skip
_LANGUAGES = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian"}


class AudioRoutes:
    """`POST /v1/audio/speech`, `/v1/audio/transcriptions` and `/v1/audio/translations`."""

    def __init__(self, runner: MediaJobRunner, forwarding: UpstreamPassthrough) -> None:
        self._runner = runner
        self._forwarding = forwarding

    async def speak(self, request: Request) -> Response:
        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            body = await bodies.parse(bodies.parse_object, await request.body())
            if self._forwarding.serves("speech", body.get("model")):
                forwarded_call = _speech_call(body, await request.body())
                return await self._forwarding.respond(request, principal, forwarded_call, idempotency_id)
            model = media_jobs.resolve_model(SPEECH, body.get("model"))
            as_events = media_jobs.choice(body, "stream_format", ("audio", "sse"), "audio") == "sse"
            check_replay(stream=as_events, has_key=idempotency_id is not None)
            text = media_jobs.text(body, "input")
            inputs = {
                "prompt": text,
                "voice": voice_name(body.get("voice")),
                "format": media_jobs.choice(body, "response_format", tuple(FORMATS), "mp3"),
                "speed": media_jobs.number(body, "speed", 1, 0.25, 4),
            }
            options: dict[str, Any] = {"idempotency_id": idempotency_id, "input_names": _INPUT_NAMES}
            result = await self._runner.run(
                media_jobs.job_request(request, principal, model, inputs, **options)
            )
            (prediction,) = result.predictions
            assert prediction.output is not None  # noqa: S101 - it succeeded
            file, rest = prediction.output.files[0], self._runner.pieces(prediction)
            # Slow speech has up to 300 MB.
            pieces = chained(await anext(rest, b""), rest)
            headers = {**responses.result_headers(prediction), "Cache-Control": "no-store"}
            if as_events:
                return partial_results.events(CompleteResult(_speech_events(pieces, text), headers))
            if file.size > media_jobs.MAX_STORED_BYTES:
                headers["Content-Length"] = str(file.size)
                return UncachedStream(pieces, 200, headers, file.content_type)
            return Response(b"".join([piece async for piece in pieces]), 200, headers, file.content_type)

        return await self._runner.run_once(request, work)

    async def transcribe(self, request: Request) -> Response:
        """Return the transcript of a recording in the requested format."""
        return await self._write_down(request, translate=False)

    async def translate(self, request: Request) -> Response:
        """Return the speech of a recording, translated to English."""
        return await self._write_down(request, translate=True)

    async def _write_down(self, request: Request, *, translate: bool) -> Response:
        wire = "translations" if translate else "transcriptions"

        async def work(principal: Principal, idempotency_id: str | None) -> Response:
            fields = await bodies.fields(request)
            values, data = fields.values, fields.files.get("file")
            if data is not None and self._forwarding.serves(wire, values.get("model")):
                source = await self._runner.receive("file", "audio", data)
                seconds = source.seconds or len(data) / _BYTES_PER_SECOND
                size = len(await request.body())
                forwarded_call = await PARSER.run_large(
                    size, recording_call, wire, fields, seconds, len(data)
                )
                # The parts are a copy of the body.
                del fields, data
                return await self._forwarding.respond(request, principal, forwarded_call, idempotency_id)
            model = media_jobs.resolve_model(TRANSCRIPTION, values.get("model"))
            if data is None:
                raise InvalidRequest("file is required and must be an audio file", param="file")
            stream = passthrough.is_stream(values)
            check_replay(stream=stream, has_key=idempotency_id is not None)
            response_format = _transcript_format(values, stream=stream, translate=translate)
            source = await self._runner.receive("file", "audio", data)
            with_words = any(part[:2] == ("timestamp_granularities[]", b"word") for part in fields.parts)
            # The recording is stored, and a run may take minutes.
            del fields, data
            inputs = {"audio_url": source.blob, "language": media_jobs.text(values, "language", "")}
            if translate:
                inputs = {"audio_url": source.blob, "translate": True}
            options: dict[str, Any] = {
                "sources": {"audio_url": source},
                "idempotency_id": idempotency_id,
                "input_names": {"audio_url": "file"},
            }
            job = media_jobs.job_request(request, principal, model, inputs, **options)
            if stream:
                return await self._stream_transcript(job)
            prediction, transcript = await self._transcript(job)
            document = TRANSCRIPT_FORMATS[response_format](transcript, with_words)
            headers = responses.result_headers(prediction)
            if isinstance(document, str):
                return PlainTextResponse(document, headers=headers)
            if translate and "task" in document:
                document["task"] = "translate"
            return responses.json(document, headers=headers)

        return await self._runner.run_once(request, work)

    async def _stream_transcript(self, job: MediaJobRequest) -> Response:
        """Return a delta event for each segment as the engine decodes it, and the final event."""
        deltas = TranscriptDeltas()

        async def complete(show: PreviewCallback) -> CompleteResult:
            prediction, transcript = await self._transcript(msgspec.structs.replace(job, show=show))
            return CompleteResult(deltas.finish(transcript), responses.result_headers(prediction))

        job = msgspec.structs.replace(job, extras={**job.extras, "partial_text": True})
        return await partial_results.respond(complete, deltas.add, _MAX_WAITING_DELTAS)

    async def _transcript(self, job: MediaJobRequest) -> tuple[Prediction, Mapping[str, Any]]:
        (prediction,) = (await self._runner.run(job)).predictions
        return prediction, media_jobs.output_data(prediction, "text", "segments", "language", "duration")


def _transcript_format(values: Mapping[str, Any], *, stream: bool, translate: bool) -> str:
    """Return the format of a transcript; raises `InvalidRequest` for unsupported formats."""
    if values.get("response_format") == "diarized_json":
        message = "diarized_json requires a model server that identifies speakers: use verbose_json"
        raise InvalidRequest(message, param="response_format")
    if translate:
        media_jobs.reject_stream(values)
    formats = _STREAMED_FORMATS if stream else tuple(TRANSCRIPT_FORMATS)
    return media_jobs.choice(values, "response_format", formats, "json")


async def _speech_events(pieces: AsyncIterable[bytes], text: str) -> AsyncGenerator[bytes]:
    """Yield events with parts of the audio in base64, and the final event with estimated tokens."""
    async for data in pieces:
        for at in range(0, len(data), _EVENT_BYTES):
            audio = base64.b64encode(data[at : at + _EVENT_BYTES]).decode()
            yield media_jobs.event({"type": "speech.audio.delta", "audio": audio})
    input_tokens = tokens_of(len(text))
    output_tokens = math.ceil(len(text) / _CHARS_PER_SECOND * _SPOKEN_TOKENS_PER_SECOND)
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    yield media_jobs.event({"type": "speech.audio.done", "usage": usage})


def _speech_call(body: Mapping[str, Any], raw: bytes) -> ForwardedCall:
    chars = len(media_jobs.text(body, "input")) + len(media_jobs.text(body, "instructions", ""))
    seconds = chars / _CHARS_PER_SECOND
    tokens = math.ceil(seconds * _SPOKEN_TOKENS_PER_SECOND)
    usage = TokenUsage(
        tokens_of(chars), tokens, audio_out=tokens, units=Units(0, round(1000 * seconds), chars)
    )
    response_format = body.get("response_format") or "mp3"
    content_type = (
        EVENTS
        if body.get("stream_format") == "sse"
        else FORMATS.get(response_format, "application/octet-stream")
    )
    return ForwardedCall("speech", SPEECH, body["model"], raw, usage, content_type, stream=True)


def recording_call(wire: str, fields: bodies.BodyFields, seconds: float, size: int = 0) -> ForwardedCall:
    """Return a request with a recording for a model server.

    `size` is the size in bytes of a file whose `seconds` are not certain, because the file states them.
    """
    max_seconds = max(seconds, size / _MIN_BYTES_PER_SECOND)
    body, content_type = passthrough.form(_with_one_recording(fields.parts))
    stream = passthrough.is_stream(fields.values)
    response_type = "text/plain" if fields.values.get("response_format") in _TEXTS else "application/json"
    return ForwardedCall(
        wire,
        TRANSCRIPTION,
        fields.values["model"],
        body,
        _recording_usage(seconds),
        EVENTS if stream else response_type,
        stream=stream,
        content_type=content_type,
        max_usage=_recording_usage(max_seconds),
    )


def _with_one_recording(parts: Sequence[FormPart]) -> list[FormPart]:
    """Return the parts without other recordings than the last file, by which the request was priced.

    Groq's servers read a recording from `url`.
    """
    recordings = [part for part in parts if part.filename and part.name == "file"][-1:]
    return [*(part for part in parts if not part.filename and part.name != "url"), *recordings]


def _recording_usage(seconds: float) -> TokenUsage:
    tokens = math.ceil(seconds * _HEARD_TOKENS_PER_SECOND)
    output = tokens_of(round(seconds * _CHARS_PER_SECOND))
    return TokenUsage(tokens, output, audio_in=tokens, units=Units(0, round(1000 * seconds)))


def voice_name(value: Any) -> str:
    """Return the voice of this server for a name or a reference of a client; raises `InvalidRequest`."""
    name: Any = cast("Mapping[str, Any]", value).get("id") if isinstance(value, Mapping) else value
    if name is None:
        return "ava"
    if not isinstance(name, str):
        raise InvalidRequest("voice must be a string", param="voice")
    return VOICES.get(name, name)


def _segments(transcript: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return transcript["segments"]


def _json(transcript: Mapping[str, Any], _with_words: bool) -> Any:
    seconds = transcript["duration"]
    return {"text": transcript["text"], "usage": {"type": "duration", "seconds": round(seconds)}}


def _text(transcript: Mapping[str, Any], _with_words: bool) -> Any:
    return transcript["text"] + "\n"


def _verbose(transcript: Mapping[str, Any], with_words: bool) -> Any:
    """Return OpenAI's verbose format; values that are not measured here are 0."""
    seconds, code = transcript["duration"], str(transcript["language"])
    document: dict[str, Any] = {
        "task": "transcribe",
        "language": _LANGUAGES.get(code.partition("-")[0], code),
        "duration": seconds,
        "text": transcript["text"],
        "segments": [
            {
                "id": number,
                "seek": round(segment["start"] * 100),
                "start": segment["start"],
                "end": segment["end"],
                "text": segment["text"],
                "tokens": [],
                "temperature": 0.0,
                "avg_logprob": 0.0,
                "compression_ratio": 0.0,
                "no_speech_prob": round(1 - segment["confidence"], 3),
            }
            for number, segment in enumerate(_segments(transcript))
        ],
        "usage": {"type": "duration", "seconds": round(seconds)},
    }
    if with_words:
        words = [word for segment in _segments(transcript) for word in segment.get("words", ())]
        document["words"] = [{name: word[name] for name in ("word", "start", "end")} for word in words]
    return document


def _srt(transcript: Mapping[str, Any], _with_words: bool) -> str:
    return "".join(
        f"{number}\n{_timestamp(segment['start'], ',')} --> {_timestamp(segment['end'], ',')}\n"
        f"{segment['text']}\n\n"
        for number, segment in enumerate(_segments(transcript), 1)
    )


def _vtt(transcript: Mapping[str, Any], _with_words: bool) -> str:
    return "WEBVTT\n\n" + "".join(
        f"{_timestamp(segment['start'], '.')} --> {_timestamp(segment['end'], '.')}\n{segment['text']}\n\n"
        for segment in _segments(transcript)
    )


def _timestamp(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{thousandths:03}"


TRANSCRIPT_FORMATS: Mapping[str, Callable[[Mapping[str, Any], bool], Any]] = {
    "json": _json,
    "text": _text,
    "verbose_json": _verbose,
    "srt": _srt,
    "vtt": _vtt,
}
