"""Invalid requests get a 400 before a 503 for what this server lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.app_fixture import running_app

RUN, TRAIN = "/api/containers/run", "/api/training"


def chat(**inputs: Any) -> dict[str, Any]:
    """Return a chat that no engine here supports."""
    return {"model": "speech-to-speech", "input": {"task": "chat", "text": "hi", **inputs}}


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (RUN, chat(history="nonsense"), "history"),
    (RUN, chat(history='{"role":"user","text":"hi"}'), "history"),
    (RUN, chat(history='[{"role":"user"}]'), "history"),
    (RUN, chat(history=[{"role": "nobody", "text": "hi"}]), "history"),
    (RUN, chat(audio="nonsense"), "audio"),
    (TRAIN, {"name": "mine", "images": ["nonsense"]}, "images"),
    (TRAIN, {"name": "mine", "images": ["https://example.com/a.png", "ftp://example.com/b.png"]}, "images"),
    (TRAIN, {"name": "mine", "images": [5]}, "images"),
]
MISSING: list[tuple[str, dict[str, Any]]] = [
    (RUN, chat(history='[{"role":"user","text":"hi"}]')),
    (RUN, chat(history=[{"role": "assistant", "text": "hello"}])),
    (RUN, chat(history="  ")),
    (TRAIN, {"name": "mine", "images": ["https://example.com/a.png"]}),
]


async def error_text(folder: Path, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the error message of a rejected request."""
    async with running_app(folder) as app:
        response = await app.client.post(path, json=body, headers=app.bearer)
        return response.status_code, response.json()


@pytest.mark.parametrize(("path", "body", "name"), WRONG)
async def test_unusable_input_is_rejected_before_a_missing_engine(
    tmp_path: Path, path: str, body: dict[str, Any], name: str
) -> None:
    status, response = await error_text(tmp_path, path, body)
    assert (status, response["code"]) == (400, "invalid_input")
    assert name in response["error"]


@pytest.mark.parametrize(("path", "body"), MISSING)
async def test_usable_input_without_an_engine_responds_503(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    status, response = await error_text(tmp_path, path, body)
    assert (status, response["code"]) == (503, "engine_unavailable")
