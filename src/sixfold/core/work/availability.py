"""Which engine serves each model here, how well, and what would serve it better."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from sixfold import errors
from sixfold.core.work.catalog import Catalog, EngineSpec, Model
from sixfold.core.work.choosing import Terms


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that engines run on: a GPU, weights, a server on this machine, a provider's key.

    `found` says what is there, or is None. `unlocks` says what it is good for and `how` what to do where it
    is missing. `used` is whether an engine of this version can use it. A `slow` resource accepts connections
    and did not answer in time. `url` and `models` are those of a server.
    """

    name: str
    kind: str
    found: str | None
    unlocks: str
    how: str
    used: bool = False
    state: Literal["found", "slow", "absent"] = "absent"
    url: str = ""
    models: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the fields for a JSON document."""
        return {**asdict(self), "models": list(self.models)}


class Survey(Protocol):
    """Reports what a server has found to run engines on."""

    async def refresh(self) -> None:
        """Look at everything again, or give up after a few seconds."""
        ...

    async def resources(self) -> tuple[Resource, ...]:
        """Return everything that is looked for, whether it is there or not."""
        ...


def report(catalog: Catalog, terms: Terms, resources: tuple[Resource, ...]) -> dict[str, Any]:
    """Return the resources, engines and models of an installation as one JSON document."""
    served: dict[str, list[str]] = {}
    for model in catalog.models():
        for engine in model.engines:
            served.setdefault(engine.name, []).append(model.name)
    return {
        "found": [resource.record() for resource in resources],
        "engines": [_engine(each, served[each.name], terms) for each in catalog.engines().values()],
        "models": [_model(model, terms) for model in catalog.models()],
    }


def _engine(engine: EngineSpec, models: list[str], terms: Terms) -> dict[str, Any]:
    standing = terms.standing(engine.name)
    return {
        "engine": engine.name,
        "version": engine.version,
        "kind": engine.kind,
        "quality": engine.quality,
        "models": models,
        "ready": standing.ready,
        "detail": standing.detail,
        "unlock": engine.unlock,
    }


def _model(model: Model, terms: Terms) -> dict[str, Any]:
    """Name the engine that a request without special inputs would get."""
    row: dict[str, Any] = {"model": model.name, "title": model.title}
    try:
        engine, quality = model.choose({}, terms)
    except errors.EngineUnavailable as error:
        nothing = {"engine": None, "quality": None, "detail": "", "full_for": ""}
        return {**row, **nothing, "unlock": error.message}
    return {
        **row,
        "engine": engine.name,
        "quality": quality,
        "detail": terms.standing(engine.name).detail,
        "full_for": ", ".join(f"some texts of {name}" for name in engine.full_for),
        "unlock": model.unlock(terms) if quality == "preview" else "",
    }
