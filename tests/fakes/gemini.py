"""Fake of Google's `generateContent` on loopback, for Gemini and Vertex AI, with service-account tokens.

`say N words` returns N words, an available tool is called, requested JSON is returned, and images are
recognized.

Sources: https://ai.google.dev/api/generate-content and https://ai.google.dev/gemini-api/docs/thought-signatures.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.fakes import fault_server

KEY, TOKEN, EMAIL = "AIza-gemini-canary-0123456789", "ya29.canary", "chat@project.iam.gserviceaccount.com"
SIGNATURE = base64.b64encode(b"signature of a call").decode()
_PLACEHOLDER = "skip_thought_signature_validator"
_WORDS = re.compile(r"say (\d+) words")
_ERRORS = {
    "key": (403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers."),
    "limit": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota."),
    "refuse": (400, "INVALID_ARGUMENT", "Invalid JSON payload received."),
    "excess": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (9) exceeds the maximum number of tokens allowed (8).",
    ),
    "fail": (503, "UNAVAILABLE", "The model is overloaded."),
}
_MODELS = [
    {"name": "models/gemini-3.5-flash", "supportedGenerationMethods": ["generateContent"], "thinking": True},
    {"name": "models/gemini-embedding-001", "supportedGenerationMethods": ["embedContent"]},
    {"name": "models/imagen-4.0-generate-001", "supportedGenerationMethods": ["predict"]},
]


@dataclass
class Gemini:
    """Fake Gemini: the received requests, and its configured behavior.

    `mode` is well, key, limit, refuse, excess, fail, filter (of the response), blocked (prompt) or truncate.
    """

    port: int = 0
    mode: str = "well"
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tokens: int = 0
    _private_key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1beta"

    def key_file(self, folder: Path) -> Path:
        """Write the key file of a service account."""
        private = self._private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        account = {"type": "service_account", "client_email": EMAIL, "private_key": private}
        path = folder / "account.json"
        path.write_text(json.dumps({**account, "token_uri": f"http://127.0.0.1:{self.port}/token"}))
        return path

    def routes(self) -> list[Route]:
        return [
            Route("/v1beta/models", self.models),
            Route("/v1beta/models/{model}:generateContent", self.generate, methods=["POST"]),
            Route("/v1beta/models/{model}:streamGenerateContent", self.stream, methods=["POST"]),
            Route("/token", self.token, methods=["POST"]),
        ]

    async def token(self, request: Request) -> Response:
        form = await request.form()
        audience = f"http://127.0.0.1:{self.port}/token"
        claims = jwt.decode(
            str(form["assertion"]), self._private_key.public_key(), ["RS256"], audience=audience
        )
        assert claims["iss"] == EMAIL
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        self.tokens += 1
        return JSONResponse({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"})

    async def models(self, request: Request) -> Response:
        return self._refusal(request) or JSONResponse({"models": _MODELS})

    async def generate(self, request: Request) -> Response:
        document = json.loads(await request.body())
        refusal = self._refusal(request) or self._check(document)
        if refusal is not None:
            return refusal
        text = json.dumps(self._reply(request, document)).encode()
        return Response(text[: len(text) // 2] if self.mode == "truncate" else text)

    async def stream(self, request: Request) -> Response:
        document = json.loads(await request.body())
        refusal = self._refusal(request) or self._check(document)
        if refusal is not None:
            return refusal
        assert request.query_params["alt"] == "sse"
        reply = self._reply(request, document)
        candidates = reply.pop("candidates", [])
        events: list[dict[str, Any]] = []
        for part in candidates[0]["content"]["parts"] if candidates else ():
            pieces = re.findall(r"\s?\S+", part["text"]) if "text" in part else [""]
            for piece in pieces:
                inner = {**part, "text": piece} if "text" in part else part
                events.append({"candidates": [{"content": {"role": "model", "parts": [inner]}, "index": 0}]})
        if candidates:
            end = {"content": {"role": "model", "parts": [{"text": ""}]}, "index": 0}
            events.append({"candidates": [{**end, "finishReason": candidates[0]["finishReason"]}]})
        events = [{**event, **reply} for event in events] or [reply]

        async def pieces_of() -> AsyncIterator[bytes]:
            for event in events[: len(events) // 2] if self.mode == "truncate" else events:
                yield b"data: " + json.dumps(event).encode() + b"\r\n\r\n"

        return StreamingResponse(pieces_of(), media_type="text/event-stream")

    def _reply(self, request: Request, document: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((request.path_params["model"], document))
        last, generation = document["contents"][-1]["parts"], document.get("generationConfig", {})
        usage = {"promptTokenCount": 14, "cachedContentTokenCount": 4}
        shared = {"modelVersion": request.path_params["model"], "responseId": "r1"}
        if self.mode == "blocked":
            return {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage, **shared}
        results = [part["functionResponse"] for part in last if "functionResponse" in part]
        parts: list[dict[str, Any]] = []
        thoughts = 6 if generation.get("thinkingConfig", {}).get("includeThoughts") else 0
        if thoughts:
            parts.append({"text": "Let me see", "thought": True})
        tools = document.get("tools", [{}])[0].get("functionDeclarations", [])
        if tools and not results:
            call = {"name": tools[0]["name"], "args": {"city": "Oslo"}}
            parts.append({"functionCall": call, "thoughtSignature": SIGNATURE})
            tokens, stop = 5, "STOP"
        else:
            text = " ".join(part.get("text", "") for part in last)
            result = _WORDS.search(text)
            message = " ".join(["word"] * int(result[1])) if result else "Hello there"
            if results:
                message = f"The tool {results[0]['name']} said {results[0]['response']['result']}"
            if generation.get("responseMimeType") == "application/json":
                message = json.dumps({"city": "Oslo"})
            images = [part["inlineData"] for part in last if "inlineData" in part]
            if images:
                assert all(base64.b64decode(image["data"], validate=True) for image in images)
                message = "I see a picture"
            words = message.split(" ")
            cut = words[: generation.get("maxOutputTokens", 10_000)]
            parts.append({"text": " ".join(cut)})
            tokens, stop = len(cut), "STOP" if cut == words else "MAX_TOKENS"
        stop = "SAFETY" if self.mode == "filter" else stop
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": stop, "index": 0}
        usage |= {"candidatesTokenCount": tokens, "totalTokenCount": 14 + tokens + thoughts}
        usage |= {"thoughtsTokenCount": thoughts} if thoughts else {}
        return {"candidates": [candidate], "usageMetadata": usage, **shared}

    def _check(self, document: dict[str, Any]) -> Response | None:
        """Refuse what Gemini 3 refuses: roles that do not alternate, and calls without a valid signature."""
        contents = document["contents"]
        assert contents[0]["role"] == "user"
        assert all(first["role"] != second["role"] for first, second in itertools.pairwise(contents))
        for content in contents:
            calls = [part for part in content["parts"] if "functionCall" in part]
            if calls and calls[0].get("thoughtSignature") not in (SIGNATURE, _PLACEHOLDER):
                error = {
                    "code": 400,
                    "message": "Function call is missing a thought_signature",
                    "status": "x",
                }
                return JSONResponse({"error": error}, 400)
        return None

    def _refusal(self, request: Request) -> Response | None:
        mode = self.mode
        inputs = (request.headers.get("x-goog-api-key"), request.headers.get("authorization"))
        if inputs not in ((KEY, None), (None, f"Bearer {TOKEN}")):
            mode = "key"
        if mode not in _ERRORS or (request.method == "GET" and mode != "key"):
            return None
        status, name, text = _ERRORS[mode]
        error = {"error": {"code": status, "message": text, "status": name}}
        return JSONResponse(error, status, {"retry-after": "7"} if mode == "limit" else {})


@asynccontextmanager
async def gemini() -> AsyncGenerator[Gemini]:
    fake = Gemini()
    async with fault_server.serve(fake.routes()) as fake.port:
        yield fake
