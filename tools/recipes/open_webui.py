"""Open WebUI with Sixfold as its only server: accounts, chat, stream, image, speech and documents."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator

import httpx

from tools.recipes.place import GUIDE, Place, RecipeFailed

_SECONDS = 180
_ASKED = {"model": "default", "messages": [{"role": "user", "content": "say 3 words"}]}
_TEXT = "The zeppelin lands at noon."


async def run(place: Place) -> str:
    """Sign up and use each feature; return a line for each."""
    async with _served(place) as origin, httpx.AsyncClient(base_url=origin, timeout=60) as client:
        person = {"name": "Ada", "email": "ada@example.com", "password": "harbour-1"}
        signed = (await client.post("/api/v1/auths/signup", json=person)).raise_for_status().json()
        client.headers["Authorization"] = f"Bearer {signed['token']}"
        models = (await client.get("/api/models")).json()["data"]
        chat = (await client.post("/api/chat/completions", json={**_ASKED, "stream": False})).json()
        stream = await client.post("/api/chat/completions", json={**_ASKED, "stream": True})
        image = (await client.post("/api/v1/images/generations", json={"prompt": "a lighthouse"})).json()
        words = {"input": "Good morning", "voice": "alloy"}
        speech = await client.post("/api/v1/audio/speech", json=words)
        found = await _document(client)
    return "\n".join(
        (
            f"role: {signed['role']}",
            f"models: {'default' in {model['id'] for model in models}}",
            f"chat: {chat['choices'][0]['message']['content']}",
            f"stream: {stream.text.count('word')} words",
            f"image: {image[0]['content_type']}",
            f"speech: {speech.status_code}, {len(speech.content) > 1000}",
            f"document: {found}",
        )
    )


async def _document(client: httpx.AsyncClient) -> str:
    """Upload a file, wait until its embeddings are stored, and return the result of a query for it."""
    file = {"file": ("landing.txt", _TEXT.encode(), "text/plain")}
    file_id = (await client.post("/api/v1/files/", files=file)).raise_for_status().json()["id"]
    async with asyncio.timeout(_SECONDS):
        status = ""
        while status != "completed":
            await asyncio.sleep(0.3)
            status = (await client.get(f"/api/v1/files/{file_id}/process/status")).json()["status"]
            if status == "failed":
                raise RecipeFailed("Open WebUI did not process the document")
    query = {"collection_name": f"file-{file_id}", "query": "when does the zeppelin land", "k": 1}
    result = (await client.post("/api/v1/retrieval/query/doc", json=query)).json()
    return str(result["documents"][0][0])


@contextlib.asynccontextmanager
async def _served(place: Place) -> AsyncIterator[str]:
    data = place.folder / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    text = (GUIDE / "open_webui.env").read_text("utf-8").replace("http://127.0.0.1:8600", place.origin)
    variables = dict(line.split("=", 1) for line in text.splitlines() if line)
    keys = ("OPENAI", "IMAGES_OPENAI", "AUDIO_TTS_OPENAI", "AUDIO_STT_OPENAI", "RAG_OPENAI")
    variables |= {f"{name}_API_KEY": place.key for name in keys}
    variables |= {"DATA_DIR": str(data), "WEBUI_SECRET_KEY": "recipe", "OFFLINE_MODE": "true"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (place.folder / "server.log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            *(str(place.folder / "venv/bin/open-webui"), "serve", "--host", "127.0.0.1"),
            *("--port", str(port)),
            cwd=place.folder,
            env={**place.environment, **variables},
            stdout=log,
            stderr=log,
        )
        try:
            await _until_healthy(f"http://127.0.0.1:{port}", child)
            yield f"http://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


async def _until_healthy(origin: str, child: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(_SECONDS), httpx.AsyncClient() as client:
        while True:
            if child.returncode is not None:
                raise RecipeFailed(f"Open WebUI ended with {child.returncode}: see server.log")
            with contextlib.suppress(httpx.TransportError):
                if (await client.get(f"{origin}/health")).status_code == 200:
                    return
            await asyncio.sleep(0.5)
