"""Large results on pages and in pictures: the beginning of a text is read, and no template gets the data."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.core.media.outputs import Output
from sixfold.ui.predictions import data_drawings, output_view
from tests.harness.pipeline import Options, running_pipeline


def test_picture_of_a_long_text_takes_little_memory() -> None:
    data = {"text": "a b " * 2**20, "count": 3}
    tracemalloc.start()
    try:
        drawing = data_drawings.draw("stt", {}, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert drawing is not None
    assert [label.text[:7] for label in drawing.labels] == ["text: ", "a b a b", "count: ", "3"]
    assert peak < 2**18


def test_data_that_was_shown_is_freed_at_once() -> None:
    class Data(dict[str, Any]):
        """Data with weak references."""

    data = Data(text="a" * 200_000, count=3)
    gc.disable()
    try:
        assert output_view.data_text({"value": [data]}).endswith("…")
        reference = weakref.ref(data)
        del data
        assert reference() is None
    finally:
        gc.enable()


async def test_template_receives_a_run_without_its_data(tmp_path: Path) -> None:
    words = PromptWords(("lake",), ("calm",))
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        queued = await pipeline.service.submit(pipeline.request("echo"))
    assert output_view._without_data(queued) is queued
    ended = msgspec.structs.replace(queued, output=Output(data={"text": "a" * 1_000}, words=words))
    shown = output_view._without_data(ended)
    assert shown.output == Output(words=words)
    assert msgspec.structs.replace(shown, output=ended.output) == ended
