"""Engine selection: order of preference, availability, and the operator's choice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sixfold import errors
from sixfold.core.accounts.prices import PriceTable
from sixfold.core.catalog import engine_selection
from sixfold.core.catalog import models as catalog
from sixfold.core.catalog.engine_selection import EngineStatus, SelectionPolicy
from sixfold.core.catalog.models import Catalog

KINDS = {"own": "weights", "comfy": "comfyui", "fal": "provider", "painter": "embedded"}
QUALITY = {"painter": "preview"}
UNLOCKS = {"own": "run `sixfold engines add image`", "comfy": "start ComfyUI", "fal": "set FAL_KEY"}


def document() -> dict[str, Any]:
    def row(name: str) -> dict[str, Any]:
        return {
            "factory": f"no.such.module:{name}",
            "version": "1",
            "quality": QUALITY.get(name, "full"),
            "kind": KINDS[name],
            "concurrency": 0,
            "idle_seconds": 60,
            "unlock": UNLOCKS.get(name, ""),
            "options": {"size": 1},
        }

    model = {"title": "t", "description": "d", "output_kind": "image", "price": "unit", "inputs": {}}
    engines = {name: row(name) for name in KINDS}
    return {"engines": engines, "models": {"ra1": {**model, "engines": list(KINDS)}}}


def build(table: dict[str, Any] | None = None) -> Catalog:
    prices = PriceTable({"unit": {"per": "request", "usd": "0.01"}})
    return catalog.build(engine_selection.apply(document(), table or {}), prices, {})


def terms(*ready: str, previews: bool = True, paid: bool = True) -> SelectionPolicy:
    return SelectionPolicy(previews, paid, lambda name: EngineStatus(name in ready))


def chosen(known: Catalog, inputs: SelectionPolicy) -> str:
    return known["ra1"].choose({}, inputs)[0].name


@pytest.mark.parametrize("first", range(4))
def test_first_available_engine_is_selected(first: int) -> None:
    names = list(KINDS)[first:]
    assert chosen(build(), terms(*names)) == names[0]


def test_preview_engine_is_selected_only_if_allowed() -> None:
    known = build()
    assert chosen(known, terms("painter")) == "painter"
    with pytest.raises(errors.EngineUnavailable) as excinfo:
        known["ra1"].choose({}, terms("painter", previews=False))
    assert str(excinfo.value) == (
        "Only a preview engine can serve ra1 here. Run `sixfold engines add image`, start ComfyUI or "
        "set FAL_KEY. SIXFOLD_PREVIEWS=allow serves previews."
    )


def test_unpaid_request_never_uses_a_provider() -> None:
    assert chosen(build(), terms("fal", "painter", paid=False)) == "painter"
    with pytest.raises(errors.EngineUnavailable):
        build()["ra1"].choose({}, terms("fal", paid=False))


def test_error_without_an_engine_names_every_remedy() -> None:
    with pytest.raises(errors.EngineUnavailable) as excinfo:
        build()["ra1"].choose({}, terms())
    assert str(excinfo.value) == (
        "No engine can serve ra1 here. Run `sixfold engines add image`, start ComfyUI or set FAL_KEY."
    )


def test_configured_order_of_kinds_excludes_unlisted_ones() -> None:
    known = build({"order": ["provider", "embedded", "weights"]})
    assert [engine.name for engine in known["ra1"].engines] == ["fal", "painter", "own"]


@pytest.mark.parametrize(("pin", "expected"), [("fal", ["fal"]), (["painter", "own"], ["painter", "own"])])
def test_pinned_model_has_only_the_configured_engines(pin: object, expected: list[str]) -> None:
    known = build({"models": {"ra1": pin}})
    assert [engine.name for engine in known["ra1"].engines] == expected


def test_configured_options_and_engines_override_the_catalog() -> None:
    table = {
        "own": {"source": "/models/a"},
        "mine": {"like": "own", "source": "/models/b", "size": 2},
        "models": {"ra1": ["mine", "own"]},
    }
    mine, own = build(table)["ra1"].engines
    assert own.options == {"size": 1, "source": "/models/a"}
    assert mine.options == {"size": 2, "source": "/models/b"}
    assert msgspec.structs.replace(mine, name="own", options=own.options) == own


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"order": ["weights", "magic"]}, "order must be a list of weights, comfyui, provider, embedded"),
        ({"order": "weights"}, "order must be a list"),
        ({"order": []}, "order must be a list"),
        ({"models": {"ra1": 3}}, "ra1 must name one of its engines"),
        ({"models": {"ra9": "own"}}, "unknown model 'ra9'"),
        ({"models": {"ra1": "owm"}}, r"own, comfy, fal, painter \(got 'owm'\)"),
        ({"mine": {"source": "x"}}, r"\[engines.mine\] requires `like`"),
        ({"mine": 3}, "'mine' must be a table of engine options; the only other keys"),
    ],
)
def test_invalid_engine_table_is_refused_with_a_reason(table: dict[str, Any], message: str) -> None:
    with pytest.raises(engine_selection.InvalidEngineConfig, match=message):
        build(table)


def test_clauses_form_a_sentence_without_repetition() -> None:
    assert engine_selection.sentence(["set FAL_KEY", "", "set FAL_KEY"]) == "Set FAL_KEY."
    assert engine_selection.sentence([]) == ""
