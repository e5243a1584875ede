"""Construction of the catalog from the settings and the bundled models, prices and templates."""

from __future__ import annotations

import copy
import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sixfold.app import graphs as app_graphs
from sixfold.clients.chat.servers import ServerStatus
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.core.accounts import prices
from sixfold.core.accounts.prices import PriceTable
from sixfold.core.catalog import engine_selection
from sixfold.core.catalog import models as catalog_models
from sixfold.core.catalog.hardware import HardwareCatalog
from sixfold.core.catalog.models import Catalog
from sixfold.core.catalog.templates import Templates
from sixfold.core.gateway.search.service import SearchEngine
from sixfold.engines import option_validation
from sixfold.engines.availability import EngineAvailability, Probe
from sixfold.engines.image.diffusers import folder_models
from sixfold.engines.image.styles.names import NAMED_STYLES
from sixfold.engines.providers import model_table
from sixfold.engines.providers.comfyui import checkpoints
from sixfold.engines.providers.comfyui.availability import ComfyAvailability
from sixfold.engines.resources import InstalledResources, Refresh
from sixfold.net.clients import HttpClients
from sixfold.providers import PROVIDERS
from sixfold.settings import InvalidSetting, Settings
from sixfold.store.secrets import provider_key

_DATA = Path(__file__).parents[1] / "data"
# Engines of providers: `max_tasks` limits the requests that wait for the provider at the same time.
_PROVIDER_ENGINE: Mapping[str, Any] = {
    "kind": "provider",
    "version": "1",
    "quality": "full",
    "concurrency": 1,
    "max_tasks": 64,
    "idle_seconds": 600,
}


@functools.cache
def read_toml(name: str) -> Mapping[str, Any]:
    """Return the tables of a bundled data file."""
    return tomllib.loads((_DATA / name).read_text("utf-8"))


@functools.cache
def _model_files() -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of `data/models/*.toml`."""
    tables: dict[str, dict[str, Any]] = {"engines": {}, "models": {}, "templates": {}}
    for path in sorted((_DATA / "models").glob("*.toml")):
        for table, rows in read_toml(f"models/{path.name}").items():
            if duplicates := tables[table].keys() & rows.keys():
                raise ValueError(f"{path.name} repeats {', '.join(sorted(duplicates))} of another file")
            tables[table].update(rows)
    return tables


def models_document() -> dict[str, Any]:
    """Return the bundled models and engines: `data/models/*.toml`, `providers.toml` and the workflows."""
    hosted, tables = model_table.engine_rows(), copy.deepcopy(_model_files())
    engines = {**hosted, **tables["engines"]}
    models = {
        name: {**row, "engines": [engine for entry in row["engines"] for engine in _expand(entry, hosted)]}
        for name, row in tables["models"].items()
    }
    models |= {workflow.model: workflow.row() for workflow in app_graphs.built_in_workflows().values()}
    return {"engines": {name: _with_provider(row) for name, row in engines.items()}, "models": models}


@functools.cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """Return the inputs of the example on each model's card, by model name."""
    rows = {**_model_files()["models"], **app_graphs.workflow_rows()}
    return {name: row["example"] for name, row in rows.items() if "example" in row}


def _expand(entry: str, hosted: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """Return the engines that an entry of `engines` names; `*-image` stands for the one of each provider."""
    if not entry.startswith("*-"):
        return (entry,)
    route = entry.removeprefix("*-")
    names = [name for name, row in hosted.items() if row["options"]["route"] == route]
    if not names:
        raise ValueError(f"{entry!r} names an engine that providers.toml does not define")
    return names


def _with_provider(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an engine, completed with the row of its provider if the engine has one."""
    if "provider" not in row:
        return row
    spec = PROVIDERS[row["provider"]]
    fields = {name: value for name, value in row.items() if name != "provider"}
    return {**_PROVIDER_ENGINE, "setting": spec.key, "unlock": f"set {spec.variable}", **fields}


def price_table(settings: Settings) -> PriceTable:
    """Return the bundled prices with the operator's overrides; raises `InvalidSetting`."""
    table: Mapping[str, Any] = settings.tables.get("prices", {})
    overrides = {name: row for name, row in table.items() if name != "own_hardware"}
    with InvalidSetting.of(prices.InvalidPrice):
        rows = prices.apply_overrides(read_toml("prices.toml"), overrides)
    return PriceTable(rows, own_hardware_free=settings.own_hardware_free)


@functools.cache
def templates() -> Templates:
    rows = _model_files()["templates"]
    order: Sequence[str] = read_toml("template_order.toml")["order"]
    names = [*order, *(name for name in rows if name not in order)]
    return Templates({name: rows[name] for name in names}, HardwareCatalog(read_toml("hardware.toml")))


def catalog(settings: Settings, table: PriceTable, document: Mapping[str, Any] | None = None) -> Catalog:
    """Build the catalog from the bundled models, or `document`, with the operator's `[engines]` applied."""
    overrides = settings.tables.get("engines", {})
    with InvalidSetting.of(engine_selection.InvalidEngineConfig, option_validation.InvalidOption):
        selected = engine_selection.apply(document or models_document(), overrides)
        for name, row in selected["engines"].items():
            shared = _shared_options(selected["engines"], row)
            row["options"] = {**_options(settings, row), **shared, **row.get("options", {})}
            if row["kind"] == "graph":
                row["free_runs"] = settings.graph_free_runs
            if row["kind"] == "comfyui":
                # Each model server runs one task at a time.
                row["max_tasks"] = row.get("max_tasks", 1) * max(
                    1, len(settings.comfyui_servers or settings.probe_hosts)
                )
            if name in overrides:
                option_validation.check(name, row["factory"], row["options"])
    styles = {"style-painter": NAMED_STYLES}
    with InvalidSetting.of(prices.InvalidPrice):
        return catalog_models.build(selected, table, styles, templates())


def availability(
    settings: Settings,
    models: Catalog,
    clients: HttpClients,
    comfyui: ComfyAddress | None = None,
    seconds: float | None = None,
) -> EngineAvailability:
    """Return the availability of all engines; `refresh` queries each server for at most `seconds`.

    `refresh` sets the address `comfyui` when it finds a ComfyUI server.
    """
    address = comfyui or app_graphs.comfyui_address(settings)
    comfy = ComfyAvailability(clients.upstream, address, seconds=seconds)
    probes: dict[str, Probe] = {"comfyui": comfy}
    engine_states = EngineAvailability(
        models.engines(), lambda name: provider_key(settings, name), settings.data_dir / "weights", probes
    )
    engine_states.on_refreshed = _FoundModels(
        models, comfy, engine_states, settings.data_dir / "weights" / "image"
    )
    return engine_states


# The first parts of the names of discovered models.
MODEL_PREFIXES = tuple(prefix.rstrip("/") for prefix in (checkpoints.PREFIX, folder_models.PREFIX))


class _FoundModels:
    """Updates the catalog's models of ComfyUI checkpoints and weight folders if these have changed."""

    def __init__(
        self, models: Catalog, comfy: ComfyAvailability, known: EngineAvailability, weights: Path
    ) -> None:
        self._models = models
        self._comfy = comfy
        self._known = known
        self._weights = weights
        self._signature: tuple[Any, ...] = ()

    def __call__(self) -> None:
        servers = tuple(self._comfy.latest.values())
        has_weights = self._known(folder_models.ENGINE).ready
        folders, loras = folder_models.read(self._weights) if has_weights else ((), ())
        signature = (checkpoints.signature(servers), folders, loras)
        if signature == self._signature:
            return
        documents = checkpoints.document(servers), folder_models.document(folders, loras)
        rows = {name: row for document in documents for name, row in document["models"].items()}
        self._models.find({"models": rows})
        self._signature = signature


def resources(
    settings: Settings,
    models: Catalog,
    known: EngineAvailability,
    chat: Callable[[], Sequence[ServerStatus]],
    probes: Sequence[Refresh] = (),
    search: Callable[[], SearchEngine | None] = lambda: None,
) -> InstalledResources:
    kinds = {engine.kind for engine in models.engines().values()}
    comfyui = known.probes.get("comfyui")
    prober = comfyui if isinstance(comfyui, ComfyAvailability) else None
    return InstalledResources(settings, kinds, prober, chat, probes, search)


def _shared_options(rows: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return the options that an engine shares with other engines, if the others set these options."""
    return {
        option: rows[name]["options"][option]
        for name, options in row.get("shares", {}).items()
        for option in options
        if option in rows[name].get("options", {})
    }


def _options(settings: Settings, row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("family"):
        # `engines add` stores downloaded weights there.
        limit = {"limit_seconds": settings.training_limit_seconds} if row.get("shares") else {}
        return {"weights": str(settings.data_dir / "weights" / row["family"]), **limit}
    if row["kind"] == "graph":
        return {"limit_seconds": settings.graph_limit_seconds, "memory_bytes": settings.graph_memory_bytes}
    urls = settings.comfyui_servers
    return {"url": urls[0]} if row["kind"] == "comfyui" and len(urls) == 1 else {}
