"""A 503 contains a command or variable that can be copied, for every model and engine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.clients import bubblewrap
from sixfold.core.catalog import models as catalog
from sixfold.core.catalog.engine_selection import EngineStatus, SelectionPolicy
from sixfold.core.catalog.models import Catalog, EngineSpec, Model
from sixfold.core.gateway import routing
from sixfold.core.memory.search import service as search_service
from sixfold.core.workflows import service as graph_service
from sixfold.drivers import container, space_images
from sixfold.engines.workflow_nodes import hosted as nodes
from sixfold.settings import Settings

ROOT = Path(__file__).parents[3]
# A command in backticks, a table of sixfold.toml in backticks, or an environment variable.
EXACT = re.compile(
    r"`(pip install [^`]+|sixfold [^`]+|apt install [^`]+|systemctl [^`]+|docker pull [^`]+|ollama serve)`"
    r"|`\[[a-z.-]+\]` of sixfold\.toml"
    r"|\b(SIXFOLD_[A-Z_]+|[A-Z]+_(KEY|API_KEY|API_TOKEN))\b"
)


def document() -> dict[str, Any]:
    return dict(app_catalog.models_document())


def build_catalog() -> Catalog:
    return catalog.build(document(), app_catalog.price_table(Settings(data_dir=Path("/nonexistent"))), {})


CATALOG = build_catalog()
ENGINES = tuple(CATALOG.engines().values())
MODELS = CATALOG.models()
LACKING = [model for model in MODELS if any(engine.unlock for engine in model.engines)]
NOTHING = SelectionPolicy(previews=True, status_of=lambda _name: EngineStatus(False))


def clauses(engine: EngineSpec) -> Iterator[str]:
    """Return the commands that a remedy names."""
    yield from re.findall(r"`([^`]+)`", engine.unlock)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_remedy_of_an_engine_names_an_exact_command_or_variable(engine: EngineSpec) -> None:
    needs_something = engine.packages or engine.setting or engine.family
    assert bool(engine.unlock) or not needs_something
    assert not engine.unlock or EXACT.search(engine.unlock), engine.unlock


@pytest.mark.parametrize("model", LACKING, ids=lambda model: model.name)
def test_refusal_without_engines_names_a_command_or_variable(model: Model) -> None:
    with pytest.raises(errors.EngineUnavailable) as excinfo:
        model.choose({}, NOTHING)
    assert EXACT.search(excinfo.value.message), excinfo.value.message


def test_every_extra_that_a_remedy_installs_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = [re.findall(r"sixfold\[([a-z]+)\]", each) for engine in ENGINES for each in clauses(engine)]
    assert {extra for result in named for extra in result} <= extras.keys()
    assert any(named)


def test_every_family_that_a_remedy_adds_can_be_added() -> None:
    families = tomllib.loads((resources.files("sixfold.data") / "weights.toml").read_text("utf-8"))
    text = "\n".join(
        [*(engine.unlock for engine in ENGINES), nodes.CLONING, search_service.UNLOCK, routing.UNLOCK]
    )
    named = set(re.findall(r"sixfold engines add ([\w-]+)", text))
    assert named <= families.keys()
    assert {"image", "embeddings", "chat"} <= named


def test_every_key_that_a_remedy_sets_is_a_setting() -> None:
    for engine in ENGINES:
        if engine.setting:
            assert engine.setting.upper() in engine.unlock, engine.name


@pytest.mark.parametrize(
    "sentence",
    [
        routing.UNLOCK,
        search_service.UNLOCK,
        graph_service.UNLOCK,
        graph_service.PUBLIC,
        nodes.CLONING,
        container.UNLOCK,
        space_images.NO_CONTAINERS,
        bubblewrap.UNLOCK,
    ],
)
def test_remedy_outside_the_catalog_names_a_command(sentence: str) -> None:
    assert EXACT.search(sentence), sentence


def test_held_back_preview_names_the_setting_that_serves_it() -> None:
    terms = SelectionPolicy(previews=False, status_of=lambda name: EngineStatus(name == "hashed-embeddings"))
    with pytest.raises(errors.EngineUnavailable, match="SIXFOLD_PREVIEWS=allow"):
        CATALOG["embeddings"].choose({}, terms)


def test_remedy_omits_previews_if_the_request_refuses_them() -> None:
    terms = SelectionPolicy(
        previews=True, status_of=lambda name: EngineStatus(name == "hashed-embeddings"), full_only=True
    )
    with pytest.raises(errors.EngineUnavailable) as excinfo:
        CATALOG["embeddings"].choose({}, terms)
    assert "`sixfold engines add embeddings`" in excinfo.value.message
    assert "SIXFOLD_PREVIEWS" not in excinfo.value.message


MEDIA = [(model, each.name) for model in MODELS for each in model.media_inputs if model.price != "children"]


@pytest.mark.parametrize(("model", "name"), MEDIA, ids=lambda value: getattr(value, "name", value))
def test_stored_media_need_an_engine_and_text_is_not_a_url(model: Model, name: str) -> None:
    values = {name: "blobs/12/3456"}
    with pytest.raises(errors.InvalidInput):
        model.choose(values, NOTHING)
    with pytest.raises(errors.EngineUnavailable):
        model.choose(values, NOTHING, {name})
