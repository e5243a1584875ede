"""The files of a form are in memory once while the run that uses them waits."""

from __future__ import annotations

import asyncio
import gc
import io
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.api.app_fixture import running_app
from tests.api.fake_engines import DotEngine
from tests.fakes import fault_server


def _png() -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 255, (1400, 1400, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG", compress_level=0)
    return file.getvalue()


@pytest.mark.parametrize(
    ("path", "name", "content"),
    [
        ("/v1/images/edits", "image", _png()),
        ("/v1/audio/transcriptions", "file", fault_server.tone(180, 16_000)),
    ],
    ids=["image", "recording"],
)
async def test_waiting_run_keeps_one_copy_of_its_form(
    path: str, name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, may_end = threading.Event(), threading.Event()

    def wait(*_arguments: Any) -> None:
        running.set()
        may_end.wait(60)

    monkeypatch.setattr(DotEngine, "obey_prompt", wait)
    form = {"prompt": (None, "a lake"), name: ("a", content)}
    async with running_app(tmp_path, probe=False) as app:
        # The first request imports modules.
        await app.client.post(path, data={"prompt": "x"}, headers=app.bearer)
        request = app.client.build_request("POST", path, files=form, headers=app.bearer)
        await request.aread()
        tracemalloc.start()
        try:
            response = asyncio.create_task(app.client.send(request))
            assert await asyncio.to_thread(running.wait, 60)
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 1.5 * len(content)
        finally:
            tracemalloc.stop()
            may_end.set()
        await response
