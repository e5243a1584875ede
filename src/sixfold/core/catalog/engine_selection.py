"""Engine selection: the order of preference, the operator's configuration, and missing requirements.

`auto` selects the first of a model's engines that can run: weights, a running ComfyUI, a provider with a key,
embedded. The configuration's table `[engines]` changes that:

    [engines]
    order = ["provider", "weights", "comfyui", "embedded"]
    [engines.models]
    ra1 = "fal-image"                      # pinned: only this one; a list is tried in order
    [engines.weights-image]                # options of a built-in engine
    source = "/models/sdxl"
    [engines.weights-anime]                # an additional engine, based on a built-in one
    like = "weights-image"
    source = "/models/animagine"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

KINDS = ("weights", "comfyui", "provider", "embedded")
_RESERVED = frozenset({"order", "models"})


class InvalidEngineConfig(ValueError):
    """The table `[engines]` is not valid; the message contains the line and the valid values."""


class EngineStatus(msgspec.Struct, frozen=True):
    """The status of an engine: whether it can run now, and its location or the missing requirement.

    `detail` is for the operator. `outage` is a clause for clients if a server that the engine needs does not
    respond.
    """

    ready: bool
    detail: str = ""
    outage: str = ""


class SelectionPolicy(msgspec.Struct, frozen=True):
    """Limits on the engines that may serve a request.

    `previews` allows engines of quality `preview`, and `paid` allows providers that charge the operator.
    `full_only` rejects a preview for this request even if previews are allowed. `status_of` returns the
    status of an engine by its name.
    """

    previews: bool
    paid: bool = True
    status_of: Callable[[str], EngineStatus] = lambda _name: EngineStatus(True)
    full_only: bool = False


def apply(document: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the catalog document with the operator's `[engines]` table applied.

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
            raise InvalidEngineConfig(f"[engines.models] has an unknown model {name!r}")
    models = {
        name: {**row, "engines": _engines_of(name, row["engines"], engines, order, pins)}
        for name, row in document["models"].items()
    }
    return {**document, "engines": engines, "models": models}


def _own(name: str, row: Any, engines: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise InvalidEngineConfig(
            f"[engines] {name!r} must be a table of engine options; the only other keys are "
            "`order` and `models`"
        )
    options = cast("dict[str, Any]", dict(row))  # pyright: ignore[reportUnknownArgumentType] - TOML's own
    like = str(options.pop("like", name))
    if like not in engines:
        raise InvalidEngineConfig(
            f"[engines.{name}] requires `like`, one of the engines {', '.join(engines)}"
        )
    base = engines[like]
    return {**base, "options": {**base.get("options", {}), **options}}


def _order(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    kinds = cast("list[Any]", value) if isinstance(value, list) else []
    if not kinds or not all(kind in KINDS for kind in kinds):
        raise InvalidEngineConfig(
            f"[engines] order must be a list of {', '.join(KINDS)}; kinds that are not listed are not used"
        )
    return tuple(kinds)


def _engines_of(
    model: str,
    engine_names: Sequence[str],
    engines: Mapping[str, Any],
    order: tuple[str, ...] | None,
    pins: Mapping[str, Any],
) -> list[str]:
    if model in pins:
        return _pinned(model, pins[model], engine_names, engines)
    if order is None:
        return list(engine_names)
    allowed = [
        name for name in engine_names if engines[name]["kind"] in order or engines[name]["kind"] not in KINDS
    ]
    return sorted(allowed, key=lambda name: [*order, engines[name]["kind"]].index(engines[name]["kind"]))


def _pinned(model: str, pin: Any, engine_names: Sequence[str], engines: Mapping[str, Any]) -> list[str]:
    """Return the engines that a pin names; each must be a built-in engine of the model or based on one."""
    factories = {engines[name]["factory"] for name in engine_names}
    valid = [name for name, row in engines.items() if row["factory"] in factories]
    names = cast("list[Any]", pin) if isinstance(pin, list) else [pin]
    for name in names:
        if name not in valid:
            raise InvalidEngineConfig(
                f"[engines.models] {model} must name one of its engines {', '.join(valid)} (got {name!r})"
            )
    return [str(name) for name in names]


def sentence(clauses: Sequence[str]) -> str:
    """Join clauses as `Run a, start b or set c.`, without duplicates, or return an empty string."""
    unique = list(dict.fromkeys(clause for clause in clauses if clause))
    if not unique:
        return ""
    text = unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"
    return f"{text[0].upper()}{text[1:]}."
