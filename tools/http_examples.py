"""Run the requests of `http_examples.toml`; write them and their responses to docs/reference/http/examples.

`python -m tools.http_examples [PAGE …]` starts a server with the embedded engines and a stand-in for a model
server. Long values of responses are cut, and the stand-in's name of its model is replaced.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.fakes.saying_server import saying_server

TABLE = Path(__file__).with_suffix(".toml")
FOLDER = Path("docs/reference/http/examples")
ADDRESS = "http://127.0.0.1:8600"
_CONFIG = """[gateway.upstreams.ollama]
kind = "openai"
base_url = "{url}"
models = ["qwen3"]
[gateway.prices."ollama/qwen3"]
input_per_million_usd = "0.10"
output_per_million_usd = "0.40"
"""
_LONGEST_TEXT, _LONGEST_LIST, _DEEPEST = 110, 2, 5
_FILE_BYTES = {
    "notes.txt": b"The lighthouse opens at nine.",
    "batch.jsonl": b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": '
    b'"ollama/qwen3", "max_tokens": 20, "messages": [{"role": "user", "content": "Hello"}]}}',
}


async def main(pages: list[str]) -> None:
    table: dict[str, list[dict[str, Any]]] = tomllib.loads(TABLE.read_text("utf-8"))
    async with _server() as (client, key):
        for page in pages or table:
            saved: dict[str, str] = {}
            texts = [await _example(client, key, row, saved) for row in table[page]]
            text = "\n".join(texts).replace('"model": "small"', '"model": "qwen3"')
            (FOLDER / f"{page}.txt").write_text(text, "utf-8")


@asynccontextmanager
async def _server() -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        async with saying_server() as models:
            models.says = "Hello! How can I help you?"
            (data / "sixfold.toml").write_text(_CONFIG.format(url=models.url), "utf-8")
            command = [sys.executable, "-m", "sixfold.cli.main", "serve", "--port", "8600"]
            environ = {**os.environ, "SIXFOLD_DATA_DIR": name, "SIXFOLD_WORKERS": "2"}
            process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=subprocess.DEVNULL)
            try:
                async with httpx.AsyncClient(base_url=ADDRESS, timeout=120) as client:
                    key = await _key(client, data)
                    yield client, key
            finally:
                process.terminate()
                await process.wait()


async def _key(client: httpx.AsyncClient, data: Path) -> str:
    async with asyncio.timeout(120):
        while True:
            try:
                if (await client.get("/readyz")).is_success:
                    return (data / "local.key").read_text("utf-8").strip()
            except (httpx.TransportError, FileNotFoundError):
                pass
            await asyncio.sleep(0.2)


async def _example(client: httpx.AsyncClient, key: str, row: Mapping[str, Any], saved: dict[str, str]) -> str:
    """Run one request; return it as a call of curl with its response, and save values for later requests."""
    method, path = _fill(row["request"], saved).split(" ", 1)
    body, file = _fill(row.get("body", ""), saved), row.get("file")
    headers = {"Authorization": f"Bearer {key}"} | row.get("headers", {})
    sent = headers | ({"Content-Type": row.get("content_type", "application/json")} if body else {})
    if file:
        form = {"data": row.get("form", {}), "files": {row.get("part", "file"): (file, _FILE_BYTES[file])}}
        response = await client.request(method, path, headers=headers, **form)
    else:
        response = await client.request(method, path, headers=sent, content=body or None)
    while "until" in row and response.json()["status"] != row["until"]:
        await asyncio.sleep(0.5)
        response = await client.request(method, path, headers=sent)
    if response.status_code != row.get("status", 200):
        raise SystemExit(f"{method} {path}: {response.status_code} {response.text[:500]}")
    if row.get("save"):
        document = response.json()
        saved |= {name: str(_at(document, field)) for name, field in row["save"].items()}
    command = _command(method, path, body, row)
    return f"$ {command}\n{_show(response)}\n"


def _fill(text: str, saved: Mapping[str, str]) -> str:
    for name, value in saved.items():
        text = text.replace(f"<{name}>", value)
    return text


def _at(document: Any, field: str) -> Any:
    for part in field.split("."):
        document = document[int(part)] if part.isdigit() else document[part]
    return document


def _command(method: str, path: str, body: str, row: Mapping[str, Any]) -> str:
    parts = [f'curl -s {ADDRESS}{path} -H "Authorization: Bearer $KEY"']
    if "?" in path:
        parts = [f'curl -s "{ADDRESS}{path}" -H "Authorization: Bearer $KEY"']
    if method != ("POST" if body or row.get("file") else "GET"):
        parts[0] = parts[0].replace("curl -s", f"curl -s -X {method}", 1)
    parts += [f'-H "{name}: {value}"' for name, value in row.get("headers", {}).items()]
    if file := row.get("file"):
        parts += [f"-F {row.get('part', 'file')}=@{file}"]
        parts += [f"-F {name}={value}" for name, value in row.get("form", {}).items()]
    if body:
        parts += [f'-H "Content-Type: {row.get("content_type", "application/json")}"', f"-d '{body}'"]
    return " \\\n    ".join(parts)


def _show(response: httpx.Response) -> str:
    kind = response.headers.get("content-type", "")
    if kind.startswith("application/json"):
        return json.dumps(_cut(response.json()), ensure_ascii=False, indent=2).replace('"…"', "…")
    if kind.startswith("text/"):
        lines = response.text.replace("\r\n", "\n").strip().split("\n")
        return "\n".join([*lines[:12], *(["…"] if len(lines) > 12 else [])])
    if not response.content:
        return f"({response.status_code}, no body)"
    return f"({len(response.content):,} bytes, {kind})"


def _cut(value: Any, depth: int = 0) -> Any:
    """Shorten long strings and lists in a value, and replace deeply nested objects by an ellipsis."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else value[: _LONGEST_TEXT - 30] + "…"
    if isinstance(value, dict):
        fields: dict[str, Any] = value
        if depth >= _DEEPEST:
            return "…"
        return {name: _cut(field, depth + 1) for name, field in fields.items()}
    if isinstance(value, list):
        items: list[Any] = value
        rest = ["…"] if len(items) > _LONGEST_LIST else []
        return [*(_cut(item, depth + 1) for item in items[:_LONGEST_LIST]), *rest]
    return value


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
