"""JSON of a ComfyUI server: NaN values, large documents in another thread, and the size limit."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import pytest

from sixfold.clients.comfyui import decoding


@pytest.mark.parametrize("padding", [0, 100_000])
async def test_nan_values_are_parsed(padding: int) -> None:
    text = await decoding.decode(json.dumps({"a": math.nan, "b": "x" * padding}).encode())
    assert math.isnan(text["a"])
    assert len(text["b"]) == padding


async def test_a_large_document_is_decoded_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []
    decode = decoding.json_decoding.decode

    def record(raw: Any) -> Any:
        readers.append(threading.current_thread())
        return decode(raw)

    monkeypatch.setattr(decoding.json_decoding, "decode", record)
    document = {f"node{at}": {"input": [["a", "b"], {"default": at / 7}]} for at in range(50_000)}
    assert await decoding.decode(json.dumps(document).encode()) == document
    assert readers
    assert threading.main_thread() not in readers


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * 600_000 + b"{}]",
        b"[NaN," + b"1," * 5_000_000 + b"1]",
        b"[" * 200_000,
        b"{",
        b"\xff" * 100_000,
    ],
)
async def test_invalid_or_too_large_json_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        await decoding.decode(body)
