"""Example outputs on cards are real, small, and of the current engine versions."""

from __future__ import annotations

import io
from typing import Any

import av
import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.settings import Settings
from sixfold.ui.catalog import example_outputs
from sixfold.ui.catalog.cards import has_card

MAX_BYTES, MAX_LARGE_BYTES, MAX_OF_ALL = 15_000, 80_000, 3_500_000
STALE = "the cards are stale: run `make gallery`"
ROWS = example_outputs.read()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
    return app_catalog.catalog(settings, app_catalog.price_table(settings))


def test_each_example_is_by_the_current_engine_version(catalog: Any) -> None:
    engines = catalog.engines()
    result = {name: (row["engine"], row["version"]) for name, row in ROWS.items()}
    assert result == {name: (engine, engines[engine].version) for name, (engine, _) in result.items()}, STALE


def test_every_embedded_model_has_an_example(catalog: Any) -> None:
    own = {
        model.name
        for model in catalog.models()
        if has_card(model) and any(engine.kind in ("embedded", "graph") for engine in model.engines)
    }
    assert own - ROWS.keys() == set(), f"{STALE}, after adding `example` to the models"
    assert ROWS.keys() == app_catalog.examples().keys(), STALE


def test_files_are_small_and_each_is_listed() -> None:
    named = {file for row in ROWS.values() for file in row["files"]}
    there = {path.name: path.stat().st_size for path in example_outputs.FOLDER.iterdir()}
    assert there.keys() - {example_outputs.LIST} == named
    large = {name: size for name, size in there.items() if example_outputs.LARGE in name}
    small = {name: there[name] for name in named - large.keys()}
    assert {name: size for name, size in small.items() if size > MAX_BYTES} == {}
    assert {name: size for name, size in large.items() if size > MAX_LARGE_BYTES} == {}
    assert sum(there.values()) <= MAX_OF_ALL


@pytest.mark.parametrize("name", ROWS)
def test_each_example_has_a_visible_image_or_audible_sound(name: str) -> None:
    row, output = ROWS[name], example_outputs.by_model()[name]
    if output.kind in ("image", "video"):
        with Image.open(example_outputs.FOLDER.parent / output.still) as image:
            colors = image.convert("RGB").getcolors(1 << 20)
        assert colors is not None
        assert len(colors) > 50
    if output.clip:
        data = (example_outputs.FOLDER.parent / output.clip).read_bytes()
        with av.open(io.BytesIO(data), "r") as clip:
            assert sum(1 for _ in clip.decode(clip.streams[0])) >= (12 if output.kind == "video" else 20)
    if output.kind == "audio":
        assert max(row["peaks"]) == 99
    assert output.still or output.line or any(output.strip) or len(output.text) > 5
