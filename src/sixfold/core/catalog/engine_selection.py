"""Which engine serves a model: the order of preference, the operator's own choices, and what is missing.

`auto` takes the first of a model's engines that can run: weights, a running ComfyUI, a provider with a
key, embedded. The configuration's table `[engines]` changes that:

    [engines]
    order = ["provider", "weights", "comfyui", "embedded"]
    [engines.models]
    ra1 = "fal-image"                      # pinned: this one or none; a list is tried in its order
    [engines.weights-image]                # options of an engine of the catalogue
    source = "/models/sdxl"
    [engines.weights-anime]                # an engine more, like one of the catalogue
    like = "weights-image"
    source = "/models/animagine"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

KINDS = ("weights", "comfyui", "provider", "embedded")
_RESERVED = frozenset({"order", "models"})


class InvalidEngineConfig(ValueError):
    """The table `[engines]` cannot be followed; the text names the line and what would be valid."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Whether an engine can run here now, and what says so: a folder, an address, what is missing."""

    ready: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SelectionPolicy:
    """What an order may be served by.

    `previews`: engines of quality preview too. `paid`: providers that take money from the operator.
    `full_only`: this order refuses a preview even where previews are served.
    `standing` tells of an engine, by name, whether it can run here now.
    """

    previews: bool
    paid: bool = True
    standing: Callable[[str], EngineStatus] = lambda _name: EngineStatus(True)
    full_only: bool = False


def apply(document: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The catalogue's document with the operator's table `[engines]` over it.

    Raises `InvalidEngineConfig`.
    """
    engines: dict[str, Any] = {name: dict(row) for name, row in document["engines"].items()}
    for name, row in table.items():
        if name not in _RESERVED:
            engines[name] = _own(name, row, engines)
    order = _order(table.get("order"))
    pins = table.get("models", {})
    for name in pins:
        if name not in document["models"]:
            raise InvalidEngineConfig(f"[engines.models] names {name!r}, which is no model")
    models = {
        name: {**row, "engines": _engines_of(name, row["engines"], engines, order, pins)}
        for name, row in document["models"].items()
    }
    return {**document, "engines": engines, "models": models}


def _own(name: str, row: Any, engines: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InvalidEngineConfig(
            f"[engines] has {name!r}, which is neither `order`, `models` nor an engine's table"
        )
    options = cast("dict[str, Any]", dict(row))  # pyright: ignore[reportUnknownArgumentType] - TOML's own
    like = str(options.pop("like", name))
    if like not in engines:
        raise InvalidEngineConfig(f"[engines.{name}] needs `like`, one of the engines {', '.join(engines)}")
    base = engines[like]
    return {**base, "options": {**base.get("options", {}), **options}}


def _order(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    kinds = cast("list[Any]", given) if isinstance(given, list) else []
    if not kinds or not all(kind in KINDS for kind in kinds):
        raise InvalidEngineConfig(
            f"[engines] order is a list of {', '.join(KINDS)}; a kind left out does not serve"
        )
    return tuple(kinds)


def _engines_of(
    model: str,
    listed: Sequence[str],
    engines: Mapping[str, Any],
    order: tuple[str, ...] | None,
    pins: Mapping[str, Any],
) -> list[str]:
    if model in pins:
        return _pinned(model, pins[model], listed, engines)
    if order is None:
        return list(listed)
    kept = [name for name in listed if engines[name]["kind"] in order or engines[name]["kind"] not in KINDS]
    return sorted(kept, key=lambda name: [*order, engines[name]["kind"]].index(engines[name]["kind"]))


def _pinned(model: str, pin: Any, listed: Sequence[str], engines: Mapping[str, Any]) -> list[str]:
    """The engines that a pin names: each must be, or be like, one that the catalogue gives the model."""
    able = {engines[name]["factory"] for name in listed}
    fit = [name for name, row in engines.items() if row["factory"] in able]
    names = cast("list[Any]", pin) if isinstance(pin, list) else [pin]
    for name in names:
        if name not in fit:
            raise InvalidEngineConfig(
                f"[engines.models] {model} names {name!r}; engines for it are {', '.join(fit)}"
            )
    return [str(name) for name in names]


def sentence(clauses: Sequence[str]) -> str:
    """`Run a, start b or set c.`, each clause once; empty without any."""
    unique = list(dict.fromkeys(clause for clause in clauses if clause))
    if not unique:
        return ""
    text = unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"
    return f"{text[0].upper()}{text[1:]}."
