"""Fake Amazon Bedrock on loopback: Converse, its binary event stream, lists of models and profiles.

Requests are authenticated by an API key, or by a signature that botocore computes again. `say N words`
returns N words, an available tool is called, and an image is recognized, as by the other fake model servers.

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, botocore's model.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import struct
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.fakes import fault_server

API_KEY = "ABSKQmVkcm9ja0FQSUtleS1jYW5hcnk="
ACCESS_KEY, SECRET, TOKEN = (
    "AKIDEXAMPLE",
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "IQoJb3JpZ2luX2VjEXAMPLE",
)
MODEL = "anthropic.claude-sonnet-4-5-20250929-v1:0"
_WORDS = re.compile(r"say (\d+) words")
_AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=(.+?), SignedHeaders=(.+?), Signature=(\w+)")
_ERRORS = {
    "key": (403, "The security token included in the request is invalid."),
    "limit": (429, "Too many tokens, please wait before trying again."),
    "refuse": (400, "Malformed input request, please reformat your input and try again."),
    "excess": (400, "Input is too long for requested model."),
    "fail": (500, "The system encountered an unexpected error during processing."),
}
_SUMMARIES = [
    {
        "modelId": MODEL,
        "inputModalities": ["TEXT", "IMAGE"],
        "outputModalities": ["TEXT"],
        "inferenceTypesSupported": ["INFERENCE_PROFILE"],
    },
    {
        "modelId": "amazon.nova-micro-v1:0",
        "inputModalities": ["TEXT"],
        "outputModalities": ["TEXT"],
        "inferenceTypesSupported": ["ON_DEMAND"],
    },
    {
        "modelId": "amazon.titan-embed-text-v2:0",
        "inputModalities": ["TEXT"],
        "outputModalities": ["EMBEDDING"],
        "inferenceTypesSupported": ["ON_DEMAND"],
    },
]


@dataclass
class Bedrock:
    """Fake Bedrock: the received requests, and its configured behavior.

    `mode` is well, key, limit, refuse, excess, fail, filter, throttled (inside a stream) or truncate.
    """

    port: int = 0
    mode: str = "well"
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def routes(self) -> list[Route]:
        return [
            Route("/model/{model:path}/converse", self.converse, methods=["POST"]),
            Route("/model/{model:path}/converse-stream", self.stream, methods=["POST"]),
            Route("/foundation-models", self.models),
            Route("/inference-profiles", self.profiles),
        ]

    async def models(self, request: Request) -> Response:
        return await self._refusal(request) or JSONResponse({"modelSummaries": _SUMMARIES})

    async def profiles(self, request: Request) -> Response:
        rows = [
            {"inferenceProfileId": f"{region}.{MODEL}", "status": "ACTIVE"} for region in ("eu", "global")
        ]
        return await self._refusal(request) or JSONResponse({"inferenceProfileSummaries": rows})

    async def converse(self, request: Request) -> Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        blocks, stop, usage = self._reply(await self._take(request))
        message = {"role": "assistant", "content": blocks}
        answer = {"output": {"message": message}, "stopReason": stop, "usage": usage}
        text = json.dumps({**answer, "metrics": {"latencyMs": 3}}).encode()
        return Response(text[: len(text) // 2] if self.mode == "truncate" else text)

    async def stream(self, request: Request) -> Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        blocks, stop, usage = self._reply(await self._take(request))
        events = [message("messageStart", {"role": "assistant"})]
        for index, block in enumerate(blocks):
            if "toolUse" in block:
                call = block["toolUse"]
                start = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
                events.append(message("contentBlockStart", {"start": start, "contentBlockIndex": index}))
                deltas = [
                    {"toolUse": {"input": part}} for part in re.findall(r".{1,5}", json.dumps(call["input"]))
                ]
            elif "reasoningContent" in block:
                inner = block["reasoningContent"]["reasoningText"]
                deltas = [{"reasoningContent": {name: inner[name]}} for name in ("text", "signature")]
            else:
                deltas = [{"text": part} for part in re.findall(r"\s?\S+", block["text"])]
            rows = [{"delta": delta, "contentBlockIndex": index} for delta in deltas]
            events += [message("contentBlockDelta", row) for row in rows]
            events.append(message("contentBlockStop", {"contentBlockIndex": index}))
        events.append(message("messageStop", {"stopReason": stop}))
        events.append(message("metadata", {"usage": usage, "metrics": {"latencyMs": 3}}))
        if self.mode == "throttled":
            events = [message("throttlingException", {"message": "Too many tokens"}, "exception")]
        if self.mode == "truncate":
            events = events[: len(events) // 2]

        async def pieces() -> AsyncIterator[bytes]:
            # Blocks do not end where messages end.
            data = b"".join(events)
            for at in range(0, len(data), 100):
                yield data[at : at + 100]
                await asyncio.sleep(0)

        return StreamingResponse(pieces(), media_type="application/vnd.amazon.eventstream")

    async def _take(self, request: Request) -> dict[str, Any]:
        document = json.loads(await request.body())
        roles = [turn["role"] for turn in document["messages"]]
        assert roles[0] == "user"
        assert all(first != second for first, second in itertools.pairwise(roles))
        self.requests.append((request.path_params["model"], document))
        return document

    def _reply(self, document: dict[str, Any]) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
        last = document["messages"][-1]["content"]
        tools = document.get("toolConfig", {}).get("tools", [])
        results = [block["toolResult"] for block in last if "toolResult" in block]
        blocks: list[dict[str, Any]] = []
        if document.get("additionalModelRequestFields", {}).get("thinking"):
            blocks.append(
                {"reasoningContent": {"reasoningText": {"text": "Let me see", "signature": "c2lnbg=="}}}
            )
        if tools and not results:
            name = tools[0]["toolSpec"]["name"]
            blocks.append({"toolUse": {"toolUseId": "tooluse_1", "name": name, "input": {"city": "Oslo"}}})
            stop, tokens = "tool_use", 5
        else:
            text = " ".join(block["text"] for block in last if "text" in block)
            result = _WORDS.search(text)
            output = " ".join(["word"] * int(result[1])) if result else "Hello there"
            if results:
                output = f"The tool said {results[0]['content'][0]['text']}"
            if any("image" in block for block in last):
                assert all(
                    base64.b64decode(block["image"]["source"]["bytes"]) for block in last if "image" in block
                )
                output = "I see a picture"
            words = output.split()
            cut = words[: document.get("inferenceConfig", {}).get("maxTokens", 10_000)]
            blocks.append({"text": " ".join(cut)})
            stop, tokens = "end_turn" if cut == words else "max_tokens", len(cut)
        if self.mode == "filter":
            blocks, stop = [{"text": "Sorry"}], "content_filtered"
        usage = {"inputTokens": 10, "outputTokens": tokens, "totalTokens": 14 + tokens}
        return blocks, stop, {**usage, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 0}

    async def _refusal(self, request: Request) -> Response | None:
        mode = self.mode if request.method == "POST" else "well"
        if not _is_authentic(request, await request.body()):
            mode = "key"
        if mode not in _ERRORS:
            return None
        status, text = _ERRORS[mode]
        headers = {"retry-after": "7"} if mode == "limit" else {}
        return JSONResponse({"message": text}, status, headers)


def _is_authentic(request: Request, body: bytes) -> bool:
    inputs = request.headers.get("authorization", "")
    if inputs == f"Bearer {API_KEY}":
        return True
    matched = _AUTHORIZATION.fullmatch(inputs)
    if matched is None:
        return False
    access_key, _, region, service, _ = matched[1].split("/")
    query = request.scope["query_string"].decode()
    url = f"http://{request.headers['host']}{request.scope['raw_path'].decode()}{'?' if query else ''}{query}"
    headers = {name: request.headers[name] for name in matched[2].split(";")}
    signed_request = AWSRequest(request.method, url, headers=headers, data=body)
    signed_request.context["timestamp"] = request.headers["x-amz-date"]
    auth = SigV4Auth(Credentials(ACCESS_KEY, SECRET), service, region)
    signature = auth.signature(
        auth.string_to_sign(signed_request, auth.canonical_request(signed_request)), signed_request
    )
    token = request.headers.get("x-amz-security-token", TOKEN)
    return (access_key, service, signature, token) == (ACCESS_KEY, "bedrock", matched[3], TOKEN)


def message(name: str, payload: dict[str, Any], kind: str = "event") -> bytes:
    """One message of an event stream."""
    pairs = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in pairs.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    start = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return start + struct.pack(">I", zlib.crc32(start))


@asynccontextmanager
async def bedrock() -> AsyncGenerator[Bedrock]:
    fake = Bedrock()
    async with fault_server.serve(fake.routes()) as fake.port:
        yield fake
