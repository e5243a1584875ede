"""Texts that guardrails check: in documents, and in stream deltas with non-standard fields."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from sixfold.core.gateway.guardrails import streams, texts
from sixfold.core.gateway.guardrails.models import KINDS

TEXT = "Write to bob@example.com today"
PIECES = [TEXT[at : at + 3] for at in range(0, len(TEXT), 3)]


def test_a_document_of_plain_text_has_a_text() -> None:
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TEXT}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
    results = list(texts.slots({"messages": [{"role": "user", "content": [plain, image]}]}))
    assert [(slot.text, slot.is_content) for slot in results] == [(TEXT, True)]


def _of_delta(delta: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


DELTAS: dict[str, Callable[[str], dict[str, Any]]] = {
    "parts": lambda piece: {"content": [{"type": "text", "text": piece}]},
    "thinking": lambda piece: {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]
    },
    "details": lambda piece: {"reasoning_details": [{"type": "reasoning.text", "text": piece, "index": 0}]},
    "function": lambda piece: {"function_call": {"arguments": piece}},
    "transcript": lambda piece: {"audio": {"transcript": piece}},
}


async def mask(events: list[dict[str, Any]]) -> str:
    async def source() -> AsyncGenerator[bytes]:
        for event in events:
            yield f"data: {json.dumps(event)}\n\n".encode()

    return "".join([block.decode() async for block in streams.mask_blocks(source(), KINDS)])


@pytest.mark.parametrize("name", DELTAS)
async def test_texts_in_other_members_of_a_delta_are_masked(name: str) -> None:
    delta = DELTAS[name]
    sent = await mask([_of_delta(delta(piece)) for piece in PIECES])
    full_text = "".join(
        slot.text
        for line in sent.splitlines()
        if line.startswith("data: ")
        for slot in texts.slots(json.loads(line.removeprefix("data: ")))
    )
    assert full_text == "Write to [EMAIL] today"


async def test_quotations_in_a_block_are_masked() -> None:
    delta = {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": TEXT}}
    sent = await mask([{"type": "content_block_delta", "index": 0, "delta": delta}])
    assert "bob@" not in sent
    assert "[EMAIL]" in sent
