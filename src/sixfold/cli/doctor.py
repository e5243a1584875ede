"""`doctor` and `engines list`: what is here, what works, and what would unlock more."""

from __future__ import annotations

import argparse
import asyncio
import platform
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from sixfold import __version__, errors, intake, inventory, storage
from sixfold.cli import banner, found, locking, opening, places, weights
from sixfold.cli.terminal import Paint, put_json
from sixfold.core.accounts import journal
from sixfold.core.quantities import size
from sixfold.core.work.catalog import Catalog, EngineSpec, Model
from sixfold.core.work.choosing import Terms
from sixfold.net.clients import Clients
from sixfold.settings import Settings
from sixfold.store import sql
from sixfold.store.keeping import BadDatabase
from sixfold.upstreams.chat import opening as relays

_LOW_DISK_BYTES = 1_000_000_000
_FAULTS = 20


def doctor(arguments: argparse.Namespace) -> int:
    """`doctor`: 1 when something is wrong that an operator has to see to."""
    configured = opening.settings_of(arguments)
    catalog = _catalog(configured)
    things, terms = asyncio.run(_look(configured, catalog))
    running = locking.running(configured.data_dir)
    disk = _free_bytes(configured)
    database = _database(configured)
    stores = asyncio.run(places.look(configured))
    problems = [*_problems(database, disk), *filter(None, (place.problem() for place in stores))]
    document: dict[str, Any] = {
        "ok": not problems,
        "problems": problems,
        "version": __version__,
        "python": platform.python_version(),
        "data_dir": str(configured.data_dir),
        "server": None if running is None else {"pid": running.pid, "url": running.url},
        "database": database,
        "disk": {"free_bytes": disk},
        "prices": _prices(),
        "stores": [place.record() for place in stores],
        "found": [thing.record() for thing in things],
        "models": [_served(model, terms) for model in catalog.models()],
    }
    if arguments.json:
        put_json(document)
    else:
        _print(document, things)
    for problem in problems:
        sys.stderr.write(f"sixfold: {problem}\n")
    return 1 if problems else 0


def list_engines(arguments: argparse.Namespace) -> None:
    """`engines list`: every engine, how good it is, and the models that it serves."""
    configured = opening.settings_of(arguments)
    catalog = _catalog(configured)
    _, terms = asyncio.run(_look(configured, catalog))
    rows = [_engine(engine, catalog, terms) for engine in catalog.engines().values()]
    kept = weights.installed(configured)
    if arguments.json:
        put_json({"engines": rows, "weights": kept})
        return
    paint = Paint()
    heads = ("", "engine", "kind", "quality", "serves, and how it stands")
    here = {True: paint.accent("●"), False: paint.dim("○")}
    cells = [
        (
            here[row["ready"]],
            row["engine"],
            row["kind"],
            row["quality"],
            f"{', '.join(row['models'])}; {row['detail'].rstrip('.')}",
        )
        for row in rows
    ]
    paint.table(heads, cells)
    if kept:
        paint.line()
        heads = ("family", "weights", "size", "commercial", "licence", "from")
        paint.table(heads, [_weights(row) for row in kept])
    if not all(row["ready"] for row in rows):
        paint.line(paint.dim("\n  `sixfold doctor` tells what would make the others ready."))


def _weights(row: dict[str, Any]) -> tuple[str, ...]:
    origin = f"{row['repository']}@{row['revision'][:12]}" if row["repository"] else "this machine"
    return (
        row["family"],
        row["name"],
        size(row["bytes"]),
        row["commercial"] or "?",
        row["licence"] or "?",
        origin,
    )


def _catalog(configured: Settings) -> Catalog:
    return inventory.catalog(configured, inventory.price_table(configured))


async def _look(configured: Settings, catalog: Catalog) -> tuple[tuple[found.Thing, ...], Terms]:
    """What is on this machine, and which engines that lets run."""
    clients = Clients(intake.open_fetcher(configured))
    known = inventory.standings(configured, catalog, clients)
    kinds = {engine.kind for engine in catalog.engines().values()}
    try:
        things, (relay, _), _ = await asyncio.gather(
            found.look(configured, kinds), relays.look(configured), known.refresh()
        )
    finally:
        await clients.aclose()
    known.told |= {name: lambda found=found: found for name, found in relay.items()}
    return things, Terms(configured.previews_allowed, standing=known)


def _engine(engine: EngineSpec, catalog: Catalog, terms: Terms) -> dict[str, Any]:
    standing = terms.standing(engine.name)
    return {
        "engine": engine.name,
        "version": engine.version,
        "kind": engine.kind,
        "quality": engine.quality,
        "models": [model.name for model in catalog.models() if engine in model.engines],
        "ready": standing.ready,
        "detail": standing.detail,
        "unlock": engine.unlock,
    }


def _served(model: Model, terms: Terms) -> dict[str, Any]:
    """Which engine serves a model here: the one that a request without special inputs would get."""
    unlock = model.unlock(terms)
    try:
        engine, quality = model.choose({}, terms)
    except errors.EngineUnavailable as none:
        return {
            "model": model.name,
            "engine": None,
            "quality": None,
            "detail": "",
            "unlock": none.message,
        }
    return {
        "model": model.name,
        "engine": engine.name,
        "quality": quality,
        "detail": terms.standing(engine.name).detail,
        "full_for": ", ".join(f"some texts of {name}" for name in engine.full_for),
        "unlock": unlock if quality == "preview" else "",
    }


# -- what can be wrong -----------------------------------------------------------------------------


def _free_bytes(configured: Settings) -> int:
    folder = configured.data_dir
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _database(configured: Settings) -> dict[str, Any] | None:
    """Look at it as it is, without bringing it to this program's schema."""
    keeper = storage.open_keeper(configured)
    newest = sql.latest(keeper.dialect)
    try:
        if keeper.schema() is None:
            return None
        health = keeper.health()
    except (BadDatabase, errors.StoreFailed) as error:
        return {"schema": None, "latest": newest, "faults": [str(error)], "ledger_faults": []}
    whole = health.schema == newest and not health.faults
    sums = opening.read(configured, journal.verify()) if whole else ()
    return {
        "schema": health.schema,
        "latest": newest,
        "faults": list(health.faults),
        "ledger_faults": list(sums),
    }


def _prices() -> dict[str, Any]:
    """How old the bundled prices of model servers are: the months in which they were read."""
    months = [str(row["as_of"]) for row in inventory.read_toml("gateway_prices.toml")["models"].values()]
    return {"models": len(months), "oldest": min(months), "newest": max(months)}


def _problems(database: dict[str, Any] | None, disk: int) -> Iterator[str]:
    if disk < _LOW_DISK_BYTES:
        yield f"Only {size(disk)} are free on the data folder's disk"
    if database is None:
        return
    schema, newest = database["schema"], database["latest"]
    if schema is not None and schema > newest:
        yield f"The database has schema {schema}, newer than this program's {newest}: upgrade Sixfold"
    elif schema is not None and schema < newest:
        yield f"The database has schema {schema}; `sixfold migrate` brings it to {newest}"
    for fault in database["faults"]:
        yield f"The database is damaged ({fault}): restore a backup with `sixfold restore`"
    yield from database["ledger_faults"]


# -- for people ------------------------------------------------------------------------------------


def _print(document: dict[str, Any], things: tuple[found.Thing, ...]) -> None:
    paint = Paint()
    database, server = document["database"], document["server"]
    paint.line(f"\n  {paint.mark()}  {paint.bold('Sixfold')} {paint.dim(document['version'])}\n")
    rows = [
        ("python", document["python"]),
        ("data", document["data_dir"]),
        ("server", server["url"] or "starting" if server else "none runs on this folder"),
        ("database", _database_in_words(database)),
        ("disk", f"{size(document['disk']['free_bytes'])} free"),
        ("prices", "{models} of models, read {oldest} to {newest}".format(**document["prices"])),
        *((store["name"], _store_in_words(store)) for store in document["stores"]),
    ]
    paint.rows(rows)
    paint.line()
    here = {True: paint.accent("●"), False: paint.dim("○")}
    width = max(len(thing.name) for thing in things) + 2
    for thing in things:
        said = thing.found or (f"{thing.how}" if thing.how else "none")
        paint.line(
            f"  {here[thing.found is not None]} {thing.name.ljust(width)}{said}  "
            f"{paint.dim(banner.benefit(thing))}"
        )
    paint.line()
    models = [
        (model["model"], model["engine"] or "none", model["quality"] or "", model.get("full_for") or "")
        for model in document["models"]
    ]
    paint.line(f"  {_count(document['models'])}\n")
    paint.table(("model", "engine", "quality", "full for"), models)
    paint.line()
    for unlock, names in _unlocked(document["models"]).items():
        paint.paragraph(paint.bold(", ".join(names)))
        paint.paragraph(unlock, indent=4)
    paint.line()


def _count(models: list[dict[str, Any]]) -> str:
    """How many models are served, and how well."""
    qualities = [model["quality"] for model in models]
    full, preview, none = (qualities.count(word) for word in ("full", "preview", None))
    said = f"{len(models)} models: {full} at full quality, {preview} as a preview"
    return f"{said}, {none} that nothing here can serve" if none else said


def _unlocked(models: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What would serve models, or serve them better, each with the names of those models."""
    named: dict[str, list[str]] = {}
    for model in models:
        if model["unlock"]:
            named.setdefault(model["unlock"], []).append(model["model"])
    return named


def _store_in_words(store: dict[str, Any]) -> str:
    return f"{store['where']}, {'writable' if store['writable'] else 'not writable'}"


def _database_in_words(database: dict[str, Any] | None) -> str:
    if database is None:
        return "none yet: the first `sixfold serve` makes it"
    if database["faults"] or database["ledger_faults"]:
        return f"schema {database['schema']}, with faults"
    return f"schema {database['schema']}, whole, and every sum is right"
