"""Media and embedding endpoints of a fake model server on loopback.

Images take 272 tokens each, speech one for each character. Raw speech is sent in
chunks, the last of them when the test sets `go_on` (`trickle`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.fakes import fault_server

if TYPE_CHECKING:
    from tests.fakes.chat_servers import ModelServer

PIECES, PIECE = 4, 4096


class MediaEndpoints:
    """Media routes of `ModelServer`, which has the modes and the received requests."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server

    def routes(self) -> list[Route]:
        return [
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/v1/images/generations", self.draw, methods=["POST"]),
            Route("/v1/images/edits", self.draw, methods=["POST"]),
            Route("/v1/audio/speech", self.speak, methods=["POST"]),
            Route("/v1/audio/transcriptions", self.listen, methods=["POST"]),
            Route("/v1/audio/translations", self.listen, methods=["POST"]),
            Route("/v1/moderations", self.moderate, methods=["POST"]),
            Route("/v1/rerank", self.rerank, methods=["POST"]),
            Route("/rerank", self.rank_texts, methods=["POST"]),
            Route("/info", self.info),
        ]

    async def embeddings(self, request: Request) -> Response:
        document, mode, fault = await self._server.take(request, json.loads(await request.body()))
        if fault is not None:
            return fault
        texts = document["input"] if isinstance(document["input"], list) else [document["input"]]
        data = [
            {"object": "embedding", "index": at, "embedding": [0.0, 1.0, float(at)]}
            for at in range(len(texts))
        ]
        usage = {"prompt_tokens": 7 * len(texts), "total_tokens": 7 * len(texts)}
        answer = {"object": "list", "data": data, "model": document["model"], "usage": usage}
        if mode == "garbage":
            answer = {"object": "list"}
        return JSONResponse(answer)

    async def moderate(self, request: Request) -> Response:
        """Find violence where the text has the word; without `flagged` for Mistral's name."""
        document, mode, fault = await self._server.take(request, json.loads(await request.body()))
        if fault is not None:
            return fault
        texts = document["input"] if isinstance(document["input"], list) else [document["input"]]
        matches = ["violence" in str(text) for text in texts]
        results: list[dict[str, Any]] = [
            {"flagged": bad, "categories": {"violence": bad}, "category_scores": {"violence": float(bad)}}
            for bad in matches
        ]
        if document["model"].startswith("mistral"):
            for result in results:
                del result["flagged"]
        answer: dict[str, Any] = {"id": "modr-1", "model": document["model"], "results": results}
        if mode == "infinite":
            text = json.dumps(answer).replace('"results": [{', '"results": [{"score": 1e999, ')
            return Response(text, media_type="application/json")
        if mode == "many":
            results[0]["categories"] = {f"c{number}": False for number in range(100_001)}
        return JSONResponse({"id": "modr-1"} if mode == "garbage" else answer)

    async def rerank(self, request: Request) -> Response:
        """Rank documents by the words that they share with the query, in Cohere's format."""
        document, mode, fault = await self._server.take(request, json.loads(await request.body()))
        if fault is not None:
            return fault
        scores = _shared_words(document["query"], document["documents"])
        rows = [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]
        if mode == "garbage":
            return JSONResponse({"results": []})
        if document["model"] == "billed":
            return JSONResponse({"results": rows, "meta": {"billed_units": {"search_units": 3}}})
        rows.append({"index": 9999, "relevance_score": 1.0})
        return JSONResponse({"results": rows, "usage": {"total_tokens": 40}})

    async def rank_texts(self, request: Request) -> Response:
        """Rank as text-embeddings-inference does."""
        document, _, fault = await self._server.take(request, json.loads(await request.body()))
        scores = _shared_words(document["query"], document["texts"])
        return fault or JSONResponse([{"index": at, "score": score} for at, score in enumerate(scores)])

    async def info(self, _request: Request) -> Response:
        """Describe the model of text-embeddings-inference."""
        kind = {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
        return JSONResponse({"model_id": "BAAI/bge-rank", "model_type": kind, "max_input_length": 512})

    async def draw(self, request: Request) -> Response:
        document, mode, fault = await self._server.take(request, await _fields(request))
        if fault is not None:
            return fault
        count = int(document.get("n", 1))
        image = base64.b64encode(fault_server.image(8, 8)).decode()
        usage = {"input_tokens": 10, "output_tokens": 272 * count, "total_tokens": 10 + 272 * count}
        usage |= {"input_tokens_details": {"text_tokens": 10, "image_tokens": 0}}
        if "image" in document:
            usage["input_tokens_details"] = {"text_tokens": 4, "image_tokens": 6}
        if document.get("stream"):
            kind = "image_generation"
            events = [{"type": f"{kind}.partial_image", "b64_json": image, "partial_image_index": 0}]
            events.append({"type": f"{kind}.completed", "b64_json": image, "usage": usage})
            return _events(events)
        answer: dict[str, Any] = {"created": 1, "data": [{"b64_json": image}] * count, "usage": usage}
        if mode == "nousage":
            del answer["usage"]
        return JSONResponse(answer)

    async def speak(self, request: Request) -> Response:
        document, mode, fault = await self._server.take(request, json.loads(await request.body()))
        if fault is not None:
            return fault
        if document.get("stream_format") == "sse":
            usage = {"input_tokens": 5, "output_tokens": len(document["input"])}
            audio = base64.b64encode(b"sound").decode()
            return _events(
                [
                    {"type": "speech.audio.delta", "audio": audio},
                    {"type": "speech.audio.done", "usage": {**usage, "total_tokens": sum(usage.values())}},
                ]
            )

        async def pieces() -> AsyncIterator[bytes]:
            try:
                for number in range(PIECES):
                    if mode == "trickle" and number == PIECES - 1:
                        await self._server.go_on.wait()
                    yield bytes([number]) * PIECE
            finally:
                self._server.disconnect_event.set()

        return StreamingResponse(pieces(), media_type="audio/mpeg")

    async def listen(self, request: Request) -> Response:
        document, mode, fault = await self._server.take(request, await _fields(request))
        if fault is not None:
            return fault
        text, shape = "good morning", document.get("response_format", "json")
        if shape in ("text", "srt", "vtt") or mode == "garbage":
            return PlainTextResponse(f"{text}\n")
        if document.get("stream"):
            usage = {"type": "tokens", "input_tokens": 20, "output_tokens": 3, "total_tokens": 23}
            usage["input_token_details"] = {"text_tokens": 0, "audio_tokens": 20}
            deltas = [{"type": "transcript.text.delta", "delta": word} for word in ("good", " morning")]
            return _events([*deltas, {"type": "transcript.text.done", "text": text, "usage": usage}])
        if shape == "verbose_json":
            response = {
                "task": "transcribe",
                "language": "english",
                "duration": 30.0,
                "text": text,
                "segments": [],
            }
            return JSONResponse(response)
        usage = {"type": "duration", "seconds": 30}
        return JSONResponse({"text": text} if mode == "nousage" else {"text": text, "usage": usage})


def _shared_words(query: str, documents: list[str]) -> list[float]:
    words = set(query.split())
    return [len(words & set(document.split())) / len(words) for document in documents]


async def _fields(request: Request) -> dict[str, Any]:
    """A JSON body, or a form's fields with the sizes of its files."""
    if request.headers["content-type"] == "application/json":
        return json.loads(await request.body())
    result: dict[str, Any] = {}
    async with request.form() as form:
        for name, value in form.multi_items():
            result[name] = value if isinstance(value, str) else [value.filename, len(await value.read())]
    return result


def _events(events: list[dict[str, Any]]) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for event in events:
            yield b"data: " + json.dumps(event).encode() + b"\n\n"

    return StreamingResponse(pieces(), media_type="text/event-stream")
