"""The server that `http_examples` calls, with stand-ins for a model server, Stripe, a hub and a space."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes import documents, fault_server, huggingface
from tests.fakes.fact_model import FactModel, fact
from tests.fakes.gradio import gradio
from tests.fakes.saying_server import SayingServer
from tests.harness.embedded_server import open_listener
from tests.unit.engines import onnx_model

_SLOW = "Write an essay."
STRIPE_SECRET = "whsec_of_the_examples"  # noqa: S105 - of a server that ends with the examples
_HUB_FILE = "BritishWerewolf/U-2-Netp/onnx/model.onnx"  # `u2netp` in weights.toml
_CONFIG = """probe = false
memory_model = "ollama/qwen3"
hub_url = "{hub}"
space_endpoint = "{space}"
stripe_url = "{url}"
[gateway.upstreams.ollama]
kind = "openai"
base_url = "{url}/v1"
models = ["qwen3"]
[gateway.prices."ollama/qwen3"]
input_per_million_usd = "0.10"
output_per_million_usd = "0.40"
[gateway.upstreams.openai]
kind = "openai"
base_url = "{url}/v1"
models = ["omni-moderation-latest", "whisper-1", "gpt-realtime"]
[gateway.prices."openai/whisper-1"]
per_minute_usd = "0.006"
[gateway.prices."openai/gpt-realtime"]
input_per_million_usd = "4"
output_per_million_usd = "16"
"""
# Values of `SayingServer` that real servers do not send.
_REPLACED = {
    '"model": "small"': '"model": "qwen3"',
    '"id": "c"': '"id": "chatcmpl-41"',
    '"id": "t"': '"id": "cmpl-42"',
    '"created": 1,\n  "model"': '"created": 1796012211,\n  "model"',
    '"created": 1, "model"': '"created": 1796012211, "model"',
}


class StandIns:
    """A model server that greets, extracts facts, moderates and transcribes, and Stripe's checkout."""

    def __init__(self) -> None:
        self._chat = SayingServer(says="Hello! How can I help you?")
        self._facts = FactModel(
            extract=[
                {"facts": [fact("Ann", "Ann keeps the lighthouse.", "I keep the lighthouse", "2026-06-03")]}
            ],
            answer=[{"sentences": [{"text": "Ann keeps the lighthouse.", "sources": [1]}]}],
        )

    @property
    def routes(self) -> list[Route]:
        chat = self._chat
        return [
            Route("/v1/models", self._models),
            Route("/v1/chat/completions", self._answer, methods=["POST"]),
            Route("/v1/completions", chat.complete, methods=["POST"]),
            Route("/v1/messages", chat.messages, methods=["POST"]),
            Route("/v1/responses", chat.responses, methods=["POST"]),
            Route("/v1/messages/count_tokens", chat.count, methods=["POST"]),
            Route("/v1/responses/input_tokens", chat.count, methods=["POST"]),
            Route("/v1/moderations", self._moderate, methods=["POST"]),
            Route("/v1/audio/transcriptions", self._transcribe, methods=["POST"]),
            Route("/v1/audio/translations", self._transcribe, methods=["POST"]),
            Route("/v1/checkout/sessions", self._checkout, methods=["POST"]),
        ]

    async def _models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "qwen3", "object": "model"}]})

    async def _answer(self, request: Request) -> Response:
        first = (await request.json())["messages"][0]["content"]
        # The batch must still be in progress when it is canceled.
        if first == _SLOW:
            await asyncio.sleep(3)
        facts = str(first).startswith(("You extract", "You compare", "You answer"))
        return await (self._facts if facts else self._chat).chat(request)

    async def _moderate(self, request: Request) -> Response:
        names = ("harassment", "hate", "self-harm", "sexual", "violence")
        result = {"flagged": False, "categories": dict.fromkeys(names, False)}
        result["category_scores"] = dict.fromkeys(names, 0.0001)
        model = (await request.json())["model"]
        return JSONResponse({"id": "modr-1", "model": model, "results": [result]})

    async def _transcribe(self, _request: Request) -> Response:
        return JSONResponse({"text": "Good morning.", "usage": {"type": "duration", "seconds": 1}})

    async def _checkout(self, _request: Request) -> Response:
        return JSONResponse({"id": "cs_1", "url": "https://checkout.stripe.com/c/pay/cs_1"})


def files() -> dict[str, bytes]:
    """Return the files that the requests send, by name."""
    page = "---\ntitle: The harbor\ntags: [coast]\n---\nThe harbor opens at six. [[people/ann]] has a boat.\n"
    return {
        "notes.txt": b"The lighthouse opens at nine.",
        "batch.jsonl": _batch("Hello"),
        "essays.jsonl": _batch(_SLOW),
        "notes.zip": documents.pack({"places/harbor.md": page}),
        "report.pdf": documents.pdf(["The lighthouse was painted in 1987."], title="Report"),
        "boat.mp4": fault_server.video(8),
    }


def _batch(text: str) -> bytes:
    """Return the file of a batch of one chat."""
    chat = {"model": "ollama/qwen3", "max_tokens": 20, "messages": [{"role": "user", "content": text}]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": chat}
    return json.dumps(line).encode()


@asynccontextmanager
async def running() -> AsyncIterator[tuple[httpx.AsyncClient, dict[str, str], dict[str, str]]]:
    """Start a new server; yield a client, the environment of its commands, and texts to replace."""
    async with AsyncExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        models = await stack.enter_async_context(fault_server.serve(StandIns().routes))
        space = await stack.enter_async_context(gradio("6"))
        onnx_model.write(_folder(data / "hub" / _HUB_FILE), (8.0, -4.0, -4.0))
        hub = stack.enter_context(huggingface.serving(data / "hub"))
        config = _CONFIG.format(url=f"http://127.0.0.1:{models}", hub=hub.url, space=space.url)
        (data / "sixfold.toml").write_text(config, "utf-8")
        environ = {**os.environ, "SIXFOLD_DATA_DIR": str(data), "SIXFOLD_WORKERS": "2"}
        environ |= {"SIXFOLD_STRIPE_SECRET_KEY": "sk_x", "SIXFOLD_STRIPE_WEBHOOK_SECRET": STRIPE_SECRET}
        with open_listener() as listener:
            port = listener.getsockname()[1]
        command = [sys.executable, "-m", "sixfold.cli.main", "serve", "--port", str(port)]
        process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=subprocess.DEVNULL)
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
                await _wait(client, process, data / "local.key")
                ports = {port: 8600, models: 11434, space.port: 7860}
                fixed = {f"127.0.0.1:{own}": f"127.0.0.1:{shown}" for own, shown in ports.items()}
                fixed |= {str(data): "/srv/sixfold", hub.url: "https://huggingface.co"}
                yield client, environ, {**fixed, **_REPLACED}
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def _folder(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    return path


async def _wait(client: httpx.AsyncClient, process: asyncio.subprocess.Process, key: Path) -> None:
    async with asyncio.timeout(120):
        while process.returncode is None:
            if await asyncio.to_thread(key.exists):
                with suppress(httpx.TransportError):
                    if (await client.get("/readyz")).is_success:
                        return
            await asyncio.sleep(0.2)
    raise SystemExit(f"The server ended before it was ready, with {process.returncode}")
