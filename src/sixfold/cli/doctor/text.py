"""The text output of `doctor` and `engines list`: at most 40 lines unless `--all` is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sixfold.cli.doctor import shared_gpus, summary
from sixfold.cli.doctor.report import CheckReport
from sixfold.cli.doctor.summary import Row
from sixfold.cli.server import banner
from sixfold.cli.terminal import TerminalStyle
from sixfold.clients import hosts
from sixfold.core.humanize import size

_OWN_KINDS = frozenset({"embedded", "graph"})
_UNCUT_COLUMNS = 1000
_MIN_WAYS, _MIN_ROWS, _MAX_WEIGHTS = 2, 5, 8


def show(document: dict[str, Any], engines: Sequence[Row], *, everything: bool) -> None:
    """Print the report of `doctor`; `everything` adds every model and every way to unlock more."""
    paint = TerminalStyle()
    width = paint.width()
    head = _head(paint, document, everything=everything)
    models, servers = document["models"], document["found"]
    works = summary.served(models, width)
    commands = summary.unlocking_commands(engines, models, servers)
    unaware = hosts.in_container() and not any(banner.on_container_host(row["url"]) for row in servers)
    container = [f"  {paint.dim(banner.IN_CONTAINER)}"] if unaware else []
    unfinished = document["unfinished_weights"]
    used_lines = len(head) + len(works) + len(container) + 4 * len(unfinished) + 6
    lines = len(commands) if everything else max(_MIN_WAYS, summary.LINES - used_lines)
    unlock = summary.unlocking(commands, _UNCUT_COLUMNS if everything else _columns(paint), lines)
    for line in (*head, "", f"  {paint.bold('Works now')}: {_count(models)}", *works):
        paint.line(line)
    _print_unfinished(paint, unfinished)
    if unlock:
        for line in ("", f"  {paint.bold('To unlock more')}", *unlock, *container):
            paint.line(line)
    if everything:
        _print_models(paint, document)
        return
    paint.line()
    more = f"{len(commands)} ways to unlock more" if commands else "the engine of each"
    paint.line(paint.dim(f"  `sixfold doctor --all` shows every model and {more}."))


def _columns(paint: TerminalStyle) -> int:
    """Return the width to which texts are cut; a file or pipe receives them uncut."""
    return paint.width() if paint.is_terminal else _UNCUT_COLUMNS


def engines(
    current: CheckReport, weights: Sequence[Row], unfinished: Sequence[Row], *, everything: bool
) -> None:
    """Print the engines in use, or all of them, and the installed and unfinished weights."""
    paint = TerminalStyle()
    if everything:
        _print_engines(paint, current)
        _print_weights(paint, weights, len(weights))
        _print_unfinished(paint, unfinished)
        return
    serves = _serves(current)
    ready = sum(bool(row["ready"]) for row in current.engines)
    shown_weights = min(len(weights), _MAX_WEIGHTS)
    overhead = 7 + (shown_weights + 3 if weights else 0) + (4 * len(unfinished))
    rows = list(serves)[: max(_MIN_ROWS, summary.LINES - overhead)]
    paint.line()
    paint.line(
        f"  {paint.bold('Serving now')}: {len(serves)} of {len(current.engines)} engines; {ready} are ready"
    )
    paint.line()
    _print_serving(paint, [row for row in current.engines if row["engine"] in rows], serves)
    _print_weights(paint, weights, shown_weights)
    _print_unfinished(paint, unfinished)
    paint.line()
    paint.line(paint.dim("  `sixfold engines list --all` shows every engine and what it needs."))


# -- doctor ----------------------------------------------------------------------------------------


def _head(paint: TerminalStyle, document: dict[str, Any], *, everything: bool) -> list[str]:
    title = f"  {paint.mark()}  {paint.bold('Sixfold')} {paint.dim(document['version'])}"
    free = f"{size(document['disk']['free_bytes'])} free"
    rows = [
        ("server", _server_in_words(document)),
        ("data", f"{document['data_dir']}, {free}"),
        ("database", _database_in_words(document["database"])),
        *_found_rows(document["found"]),
        *shared_gpus.rows(document["gpus"]),
    ]
    stores = [
        (store["name"], _store_in_words(store))
        for store in document["stores"]
        if everything or not store["writable"]
    ]
    if everything:
        dated = "{models} of models, read {oldest} to {newest}"
        tables = [
            (label, dated.format(**document[name]))
            for label, name in (("prices", "prices"), ("limits", "hosted_models"))
        ]
        rows += [("python", document["python"]), *tables]
    width = _columns(paint) - (column := max(len(name) for name, _ in (*rows, *stores)) + 2) - 2
    short = rows if everything else [(name, summary.cut(text, width)) for name, text in rows]
    lines = [f"  {paint.dim(name.ljust(column))}{text}" for name, text in (*short, *stores)]
    return ["", title, "", *lines]


def _server_in_words(document: dict[str, Any]) -> str:
    server = document["server"]
    if server is None:
        return "not running on this folder: start it with `sixfold serve`"
    if not server["url"]:
        return f"starting, or a worker (process {server['pid']})"
    note = "this is its report" if document["source"] == "server" else "it gave no report, see below"
    return f"{server['url']}; {note}"


def _found_rows(servers: Sequence[Row]) -> list[tuple[str, str]]:
    rows = [
        (
            row["name"],
            f"{row['found']}  {banner.benefit(row['unlocks'], used=row['used'])}"
            if row["found"]
            else row["how"],
        )
        for row in servers
        if row["state"] != "absent"
    ]
    return rows or [("found", banner.NOTHING)]


def _count(models: Sequence[Row]) -> str:
    qualities = [model["quality"] for model in models]
    full, preview = qualities.count("full"), qualities.count("preview")
    return f"{full + preview} of {len(models)} models, {full} at full quality and {preview} as a preview"


def _print_models(paint: TerminalStyle, document: dict[str, Any]) -> None:
    for row in document["found"]:
        if row["state"] == "absent" and row["how"]:
            good_for = banner.benefit(row["unlocks"], used=row["used"])
            paint.line(f"  {paint.dim('○')} {row['name']}: {row['how']}  {paint.dim(good_for)}")
    models = [
        (model["model"], task, model["engine"] or "none", model["quality"] or "", model["full_for"])
        for task, rows in summary.by_task(document["models"]).items()
        for model in rows
    ]
    paint.line()
    paint.table(("model", "task", "engine", "quality", "full for"), models)
    paint.line()
    for unlock, names in _unlocked(document["models"]).items():
        paint.paragraph(paint.bold(", ".join(names)))
        paint.paragraph(unlock, indent=4)


def _unlocked(models: Sequence[Row]) -> dict[str, list[str]]:
    """Map each way to enable models, or to improve their quality, to the names of those models."""
    names_by_text: dict[str, list[str]] = {}
    for model in models:
        if model["unlock"]:
            names_by_text.setdefault(model["unlock"], []).append(model["model"])
    return names_by_text


def _store_in_words(store: dict[str, Any]) -> str:
    return f"{store['where']}, {'writable' if store['writable'] else 'not writable'}"


def _database_in_words(database: dict[str, Any] | None) -> str:
    if database is None:
        return "none yet; `sixfold serve` creates it"
    if database["faults"] or database["ledger_faults"]:
        return f"schema {database['schema']}, with faults"
    return f"schema {database['schema']}, intact, and the ledger is consistent"


# -- engines ---------------------------------------------------------------------------------------


def _serves(current: CheckReport) -> dict[str, list[str]]:
    """Map each engine in use to its tasks and models; external engines come first."""
    kinds = {row["engine"]: row["kind"] for row in current.engines}
    names_by_text: dict[str, list[str]] = {}
    for task, rows in summary.by_task(current.models).items():
        for engine in dict.fromkeys(row["engine"] for row in rows if row["engine"]):
            names = [row["model"] for row in rows if row["engine"] == engine]
            names_by_text.setdefault(engine, []).append(f"{task}: {', '.join(names)}")
    return dict(sorted(names_by_text.items(), key=lambda item: kinds.get(item[0]) in _OWN_KINDS))


def _print_serving(paint: TerminalStyle, rows: Sequence[Row], serves: dict[str, list[str]]) -> None:
    by_name = {row["engine"]: row for row in rows}
    cells = [
        (name, by_name[name]["kind"], by_name[name]["quality"], "; ".join(served))
        for name, served in serves.items()
        if name in by_name
    ]
    heads = ("engine", "kind", "quality", "serves")
    widths = [max(map(len, column)) + 2 for column in zip(heads, *cells, strict=True)][:-1]
    width = _columns(paint) - 2 - sum(widths)
    paint.table(heads, [(*cell[:-1], summary.cut(cell[-1], width)) for cell in cells])


def _print_engines(paint: TerminalStyle, current: CheckReport) -> None:
    marks = {True: paint.accent("●"), False: paint.dim("○")}
    cells = [
        (
            marks[row["ready"]],
            row["engine"],
            row["kind"],
            row["quality"],
            f"{', '.join(row['models'])}; {row['detail'].rstrip('.')}",
        )
        for row in sorted(current.engines, key=lambda row: not row["ready"])
    ]
    paint.table(("", "engine", "kind", "quality", "models, and status"), cells)


def _print_weights(paint: TerminalStyle, rows: Sequence[Row], limit: int) -> None:
    if not rows:
        return
    paint.line()
    heads = ("family", "weights", "size", "commercial", "license", "from")
    paint.table(heads, [_weights(row) for row in rows[:limit]])
    if limit < len(rows):
        paint.line(paint.dim(f"  and {len(rows) - limit} more"))


def _print_unfinished(paint: TerminalStyle, rows: Sequence[Row]) -> None:
    for row in rows:
        paint.line()
        paint.line(f"  {paint.bold('Not finished')}: {row['family']} {row['name']}, {size(row['bytes'])}")
        paint.line(f"  to continue  {row['continue']}")
        paint.line(f"  to remove    {row['remove']}")


def _weights(row: Row) -> tuple[str, ...]:
    origin = f"{row['repository']}@{row['revision'][:12]}" if row["repository"] else "this machine"
    return (
        row["family"],
        row["name"],
        size(row["bytes"]),
        row["commercial"] or "?",
        row["licence"] or "?",
        origin,
    )
