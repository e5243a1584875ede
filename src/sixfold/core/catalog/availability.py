"""Report of the engine that serves each model, its quality, and how to improve it."""

from __future__ import annotations

from typing import Literal, Protocol, TypedDict

import msgspec

from sixfold import errors
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.engines import Quality
from sixfold.core.catalog.models import Catalog, EngineSpec, Model

ResourceState = Literal["found", "slow", "unreachable", "absent"]
# The states of a server that is expected to respond.
NOT_RESPONDING = ("slow", "unreachable")


class ResourceSchema(TypedDict):
    """A resource that engines use, as JSON."""

    name: str
    kind: str
    found: str | None
    unlocks: str
    how: str
    used: bool
    state: ResourceState
    url: str
    models: list[str]


class Resource(msgspec.Struct, frozen=True):
    """A resource that engines use, such as a GPU, weights, a local server or a provider's key.

    `found` describes what was detected, or is None. `unlocks` describes its use, and `how` explains how to
    add it. `used` is True if an engine of this version can use it. A `slow` resource accepted the connection
    but did not answer in time, and an `unreachable` server is configured or was found before, but does not
    respond; then `how` contains the time and the reason. `url` and `models` describe a server.
    """

    name: str
    kind: str
    found: str | None
    unlocks: str
    how: str
    used: bool = False
    state: ResourceState = "absent"
    url: str = ""
    models: tuple[str, ...] = ()

    def record(self) -> ResourceSchema:
        """Return the fields for a JSON document."""
        return {
            "name": self.name,
            "kind": self.kind,
            "found": self.found,
            "unlocks": self.unlocks,
            "how": self.how,
            "used": self.used,
            "state": self.state,
            "url": self.url,
            "models": list(self.models),
        }


class AvailabilitySurvey(Protocol):
    """Reports the resources that a server has detected."""

    async def refresh(self) -> None:
        """Detect all resources again, for at most a few seconds."""
        ...

    async def resources(self) -> tuple[Resource, ...]:
        """Return all resources that can be detected, whether present or not."""
        ...


class EngineSchema(TypedDict):
    """An engine, and whether it can serve requests now."""

    engine: str
    version: str
    kind: str
    quality: Quality | None
    models: list[str]
    ready: bool
    detail: str
    unlock: str


class ServedModelSchema(TypedDict):
    """A model, and the engine for a request without special inputs."""

    model: str
    title: str
    engine: str | None
    quality: Quality | None
    detail: str
    full_for: str
    unlock: str


class ReportSchema(TypedDict):
    """The resources, engines and models of an installation."""

    found: list[ResourceSchema]
    engines: list[EngineSchema]
    models: list[ServedModelSchema]


def report(catalog: Catalog, terms: SelectionPolicy, resources: tuple[Resource, ...]) -> ReportSchema:
    """Return the resources, engines and models of an installation as one JSON document."""
    served: dict[str, list[str]] = {}
    for model in catalog.models():
        for engine in model.engines:
            served.setdefault(engine.name, []).append(model.name)
    return {
        "found": [resource.record() for resource in resources],
        "engines": [
            _engine(engine, served.get(engine.name, []), terms) for engine in catalog.engines().values()
        ],
        "models": [_model(catalog, model, terms) for model in catalog.models()],
    }


def _engine(engine: EngineSpec, models: list[str], terms: SelectionPolicy) -> EngineSchema:
    status = terms.status_of(engine.name)
    return {
        "engine": engine.name,
        "version": engine.version,
        "kind": engine.kind,
        "quality": engine.quality,
        "models": models,
        "ready": status.ready,
        "detail": status.detail,
        "unlock": engine.unlock,
    }


def serving(catalog: Catalog, model: Model, terms: SelectionPolicy) -> tuple[EngineSpec, Quality]:
    """Return the engine for a request without special inputs, and its quality.

    A workflow has the quality `preview` if one of its parts has. Raises `EngineUnavailable`.
    """
    engine, quality = model.choose({}, terms)
    qualities = {catalog[name].choose({}, terms)[1] for name in model.parts}
    return engine, "preview" if "preview" in qualities else quality


def _model(catalog: Catalog, model: Model, terms: SelectionPolicy) -> ServedModelSchema:
    try:
        engine, quality = serving(catalog, model, terms)
    except errors.EngineUnavailable as error:
        return {
            "model": model.name,
            "title": model.title,
            "engine": None,
            "quality": None,
            "detail": "",
            "full_for": "",
            "unlock": error.message,
        }
    return {
        "model": model.name,
        "title": model.title,
        "engine": engine.name,
        "quality": quality,
        "detail": terms.status_of(engine.name).detail,
        "full_for": ", ".join(f"some texts of {name}" for name in engine.full_for),
        "unlock": model.unlock(terms) if quality == "preview" else "",
    }
