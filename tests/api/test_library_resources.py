"""Every method of the official OpenAI and Anthropic libraries gets a response: no path is unknown."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import anthropic
import openai
import pytest

from tests.api.app_fixture import client as app_client
from tests.api.gateway import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")
CALL = re.compile(r'self\._(get|post|delete|patch|put|get_api_list)\(\s*(?:path_template\(\s*)?f?"(/[^"]*)"')
# The fewest calls that the sources of a library have; fewer would mean that they are not read.
LEAST = {"openai": 300, "anthropic": 200}


def calls(library: ModuleType) -> list[tuple[str, str]]:
    """Return the methods and paths in the sources of a library, with names in place of ids."""
    assert library.__file__ is not None
    names: set[tuple[str, str]] = set()
    for file in (Path(library.__file__).parent / "resources").rglob("*.py"):
        text = file.read_text("utf-8")
        for match in CALL.finditer(text):
            rest = text[match.end() :].partition("self._")[0]
            listing = "POST" if 'method="post"' in rest else "GET"
            verb = listing if match[1] == "get_api_list" else match[1].upper()
            path = re.sub(r"\{[^}]*\}", "none", match[2].partition("?")[0])
            names.add((verb, path if path.startswith("/v1/") else f"/v1{path}"))
    return sorted(names)


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


@pytest.mark.parametrize("library", [openai, anthropic], ids=["openai", "anthropic"])
async def test_every_library_method_has_a_known_path(gateway: Gateway, library: ModuleType) -> None:
    headers = {**gateway.headers, "content-type": "application/json"}
    if library is anthropic:
        headers["anthropic-version"] = "2023-06-01"
    client = app_client(gateway.app.asgi)
    rows = calls(library)
    assert len(rows) >= LEAST[library.__name__]
    faults: list[str] = []
    for verb, path in rows:
        body = b"{}" if verb in ("POST", "PUT", "PATCH") else b""
        response = await client.request(verb, path, content=body, headers=headers)
        text = response.text
        status = response.status_code
        unknown = status == 404 and "/openapi/gateway.json" in text
        unexplained = status == 405 and "is not supported by this server" not in text
        if unknown or unexplained or status == 500 or (status >= 400 and "error" not in text):
            faults.append(f"{verb} {path}: {response.status_code} {text[:120]}")
    assert faults == [], "\n".join(faults)
