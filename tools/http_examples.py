"""Run the requests of `http_examples.toml`; write them and their responses to docs/reference/http/examples.

`python -m tools.http_examples [PAGE …]` starts a server for each page, with the embedded engines and the
stand-ins of `http_stand_ins`. Long values of responses are cut, secrets and the data folder are replaced.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tools.http_stand_ins import STRIPE_SECRET, files, running

TABLE = Path(__file__).with_suffix(".toml")
# The default address, instead of the address of the server.
ADDRESS = "http://127.0.0.1:8600"
FOLDER = Path("docs/reference/http/examples")
WITHOUT = "without"
_LONGEST_TEXT, _LONGEST_LIST, _DEEPEST, _WIDTH, _LINES = 110, 2, 5, 100, 12
_TRIES, _PAUSE_SECONDS = 120, 0.5
_SECRET = re.compile(r"\b(sf|whsec|link|invite|ek|sess)_(?=[\w+/=-]*[A-Z])[\w+/=-]{20,}…?")


async def main(pages: list[str]) -> None:
    table: dict[str, Any] = tomllib.loads(TABLE.read_text("utf-8"))
    for page in pages or [name for name in table if name != WITHOUT]:
        async with running() as (client, environ, replaced):
            examples = Examples(client, environ)
            texts = [await examples.run(row) for row in table[page]]
        text = "\n".join(text for text in texts if text)
        for found, value in replaced.items():
            text = text.replace(found, value)
        text = _SECRET.sub(lambda secret: f"{secret[0][:10]}…", text)
        (FOLDER / f"{page}.txt").write_text(text, "utf-8")


class Examples:
    """Requests to one server, with the values, keys and files that they save for each other."""

    def __init__(self, client: httpx.AsyncClient, environ: Mapping[str, str]) -> None:
        self._client, self._environ = client, environ
        self._origin = str(client.base_url).rstrip("/")
        key = Path(environ["SIXFOLD_DATA_DIR"], "local.key").read_text("utf-8").strip()
        self._keys = {"": key}
        self._saved: dict[str, str] = {}
        self._files = files()

    async def run(self, row: Mapping[str, Any]) -> str:
        """Run a row; return its request as a call of curl with its response, or nothing for a preparation."""
        if "command" in row:
            await self._command(row)
            return ""
        method, path = self._fill(row["request"]).split(" ", 1)
        path, body = path.removeprefix(self._origin), self._fill(row.get("body", ""))
        field = self._fill(row.get("field", "status"))
        response = await self._send(method, path, body, row)
        for _ in range(_TRIES):
            if "until" not in row or _at(response.json(), field) == row["until"]:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
            response = await self._send(method, path, body, row)
        if response.status_code != row.get("status", 200):
            raise SystemExit(f"{method} {path}: {response.status_code} {response.text[:500]}")
        if "save" in row:
            found = {name: _at(response.json(), field) for name, field in row["save"].items()}
            if None in found.values():
                raise SystemExit(f"{method} {path} has no {found}: {response.text[:500]}")
            self._saved |= {name: str(value) for name, value in found.items()}
        if "keep" in row:
            self._files[row["keep"]] = response.content
        shown = _show(response, row) if row.get("show", True) else ""
        return shown and f"$ {_curl(method, path, body, row)}\n{shown}\n"

    async def _command(self, row: Mapping[str, Any]) -> None:
        """Run a command of `sixfold` that prints a key, and save the key."""
        command = [sys.executable, "-m", "sixfold.cli.main", *self._fill(row["command"]).split(), "--json"]
        process = await asyncio.create_subprocess_exec(
            *command, env=self._environ, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise SystemExit(f"{row['command']}: ended with {process.returncode}")
        self._keys[row["key"]] = json.loads(output)["api_key"]

    async def _send(self, method: str, path: str, body: str, row: Mapping[str, Any]) -> httpx.Response:
        headers = {name: self._fill(value) for name, value in row.get("headers", {}).items()}
        if row.get("key", "") != "none":
            headers["Authorization"] = f"Bearer {self._keys[row.get('key', '')]}"
        if row.get("sign"):
            now = int(time.time())
            digest = hmac.new(STRIPE_SECRET.encode(), f"{now}.{body}".encode(), hashlib.sha256).hexdigest()
            headers["Stripe-Signature"] = f"t={now},v1={digest}"
        if "file" in row:
            part = {row.get("part", "file"): (row["file"], self._files[row["file"]])}
            form = {name: self._fill(value) for name, value in row.get("form", {}).items()}
            return await self._client.request(method, path, headers=headers, data=form, files=part)
        content = self._files[row["raw"]] if "raw" in row else body.encode()
        if content:
            headers["Content-Type"] = row.get("content_type", "application/json")
        return await self._client.request(method, path, headers=headers, content=content or None)

    def _fill(self, text: str) -> str:
        for name, value in self._saved.items():
            text = text.replace(f"<{name}>", value)
        return text


def _at(document: Any, field: str) -> Any:
    """Return the value at a path such as `members.1.id` or `members.role=admin.id`, or None."""
    for part in field.split("."):
        name, _, value = part.partition("=")
        try:
            if value:
                document = next(item for item in document if item[name] == value)
            else:
                document = document[int(part) if isinstance(document, list) else part]
        except (IndexError, KeyError, StopIteration):
            return None
    return document


def _curl(method: str, path: str, body: str, row: Mapping[str, Any]) -> str:
    url = f'"{ADDRESS}{path}"' if "?" in path else f"{ADDRESS}{path}"
    sends = body or "file" in row or "raw" in row
    parts = ["curl -s " + ("" if method == ("POST" if sends else "GET") else f"-X {method} ") + url]
    if row.get("key", "") != "none":
        name = f"{row['key'].upper()}_KEY" if row.get("key") else "KEY"
        parts.append(f'-H "Authorization: Bearer ${name}"')
    parts += [f'-H "{name}: {value}"' for name, value in row.get("headers", {}).items()]
    parts += ['-H "Stripe-Signature: t=…,v1=…"'] if row.get("sign") else []
    if "file" in row:
        parts += [f"-F {row.get('part', 'file')}=@{row['file']}"]
        parts += [f"-F {_quoted(f'{name}={value}')}" for name, value in row.get("form", {}).items()]
    elif sends:
        parts += [f'-H "Content-Type: {row.get("content_type", "application/json")}"']
        parts += [f"--data-binary @{row['raw']}" if "raw" in row else f"-d '{body}'"]
    if len(" ".join(parts[:2])) <= _WIDTH:
        parts[:2] = [" ".join(parts[:2])]
    return " \\\n    ".join(parts)


def _quoted(text: str) -> str:
    return f"'{text}'" if re.search(r"[^\w=./:@-]", text) else text


def _show(response: httpx.Response, row: Mapping[str, Any]) -> str:
    kind = response.headers.get("content-type", "")
    if not response.content:
        return f"({response.status_code}, no body)"
    if kind.startswith("application/json"):
        document = response.json()
        if "first" in row:
            name, _, value = row["first"].partition("=")
            for items in document.values():
                items.sort(key=lambda item: item[name] != value)
        if "fields" in row:
            document = {**dict(list(document.items())[: row["fields"]]), "…": "…"}
        cut = _cut(document, row.get("depth", _DEEPEST), row.get("items", _LONGEST_LIST))
        return _json(cut).replace('"…"', "…").replace("…: …", "…")
    if kind.startswith("text/") or (kind == "application/octet-stream" and b"\0" not in response.content):
        lines = [_shorten(line, 2 * _WIDTH) for line in response.text.strip().splitlines()]
        return "\n".join([*lines[:_LINES], *(["…"] if len(lines) > _LINES else [])])
    return f"({len(response.content):,} bytes, {kind})"


def _cut(value: Any, depth: int, longest: int) -> Any:
    """Shorten long strings and lists in a value, and replace objects at this depth by an ellipsis."""
    if isinstance(value, str):
        return _shorten(value, _LONGEST_TEXT)
    if isinstance(value, dict):
        fields: dict[str, Any] = value
        return {name: _cut(field, depth - 1, longest) for name, field in fields.items()} if depth else "…"
    if isinstance(value, list):
        items: list[Any] = value
        rest = ["…"] if len(items) > longest else []
        return [*(_cut(item, depth - 1, longest) for item in items[:longest]), *rest]
    return value


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 30] + "…"


def _json(value: Any, indent: int = 0) -> str:
    """Return a value as JSON, with each object or list on one line where it fits."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= _WIDTH or not isinstance(value, (dict, list)):
        return line
    pad, inner = " " * indent, indent + 2
    if isinstance(value, list):
        items: list[Any] = value
        rows, (start, end) = [_json(item, inner) for item in items], "[]"
    else:
        fields: dict[str, Any] = value
        rows = [f"{json.dumps(name)}: {_json(field, inner)}" for name, field in fields.items()]
        start, end = "{}"
    return f"{start}\n" + ",\n".join(f"{pad}  {row}" for row in rows) + f"\n{pad}{end}"


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
