"""A summary of the working models and of the commands that unlock more, for the width of a terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sixfold.app import catalog as app_catalog
from sixfold.core.catalog.tasks import TASKS
from sixfold.providers import CHAT_PROVIDERS, PROVIDERS

# Maximum number of lines of `doctor` and `engines list` without --all.
LINES = 40
OTHERS = "other models"
_GAP = "  "
_MAX_ENGINE_COLUMNS, _COMMAND_COLUMNS = 28, 44
_LONG_COMMAND = 60
_INSTALL = re.compile(r"install `([^`]+)`(?: and run `([^`]+)`)?(?: \(.*\))?")
_RUN = re.compile(r"run `([^`]+)`(?: and `([^`]+)`)?")
_COMFYUI = re.compile(r"start ComfyUI with (.+) \(SIXFOLD_COMFYUI_URL\)")
_ADD_CHAT = "sixfold engines add chat"
_PULL = re.compile(r"`(ollama pull [^`]+)`")
_NAMED_PROVIDERS = 3
_KEYS = {f"set {spec.variable}": name for name, spec in PROVIDERS.items()}
Row = Mapping[str, Any]


def fitted(names: Sequence[str], width: int) -> str:
    """Join as many names as fit into `width` columns, at least one, and count the others."""
    for count in range(len(names), 0, -1):
        remaining = len(names) - count
        text = ", ".join([*names[:count], *([f"+{remaining}"] if remaining else [])])
        if len(text) <= width or count == 1:
            return text
    return ""


def cut(text: str, width: int) -> str:
    """Shorten a text to `width` columns."""
    return text if len(text) <= width else f"{text[: max(1, width - 1)]}…"


# -- models by task --------------------------------------------------------------------------------


@cache
def _tasks_of_models() -> Mapping[str, str]:
    return {name: row.get("task", OTHERS) for name, row in app_catalog.models_document()["models"].items()}


def task_of(model: str) -> str:
    """Return the task of a model, such as "text to image"."""
    return _tasks_of_models().get(model, OTHERS)


def by_task(models: Iterable[Row]) -> dict[str, list[Row]]:
    """Group models by task; models without a task come last."""
    groups: dict[str, list[Row]] = {task: [] for task in (*TASKS, OTHERS)}
    for model in models:
        groups[task_of(model["model"])].append(model)
    return {task: rows for task, rows in groups.items() if rows}


def served(models: Iterable[Row], width: int) -> list[str]:
    """Return one line for each task and quality: the task, its models and their engines."""
    cells: list[tuple[str, list[str], str]] = []
    for task, rows in by_task(models).items():
        for quality in ("full", "preview"):
            rows_of_quality = [row for row in rows if row["quality"] == quality]
            engines = list(dict.fromkeys(str(row["engine"]) for row in rows_of_quality))
            if rows_of_quality:
                by = f"{fitted(engines, _MAX_ENGINE_COLUMNS - len(quality) - 3)} ({quality})"
                cells.append((task, [str(row["model"]) for row in rows_of_quality], by))
    first = max((len(task) for task, _, _ in cells), default=0)
    last = max((len(by) for _, _, by in cells), default=0)
    columns = width - first - last - 3 * len(_GAP)
    lines: list[str] = []
    last_task = ""
    for task, names, by in cells:
        label = "" if task == last_task else task
        last_task = task
        models_text = cut(fitted(names, columns), columns)
        lines.append(f"{_GAP}{label.ljust(first)}{_GAP}{models_text.ljust(columns)}{_GAP}{by}")
    return lines


# -- ways to unlock more ---------------------------------------------------------------------------


def unlocking_commands(
    report_engines: Iterable[Row], models: Sequence[Row], servers: Sequence[Row]
) -> dict[str, list[str]]:
    """Map commands to the tasks that they would unlock or improve, the easiest first.

    Commands that unlock a task come before those that improve one. Among them, model servers come before
    ComfyUI, then other local installations; providers come last because they cost money.
    """
    unserved = {task for task, rows in by_task(models).items() if not any(row["quality"] for row in rows)}
    lacking = {row["model"] for row in models if row["quality"] != "full"}
    better: dict[str, set[str]] = {}
    providers: dict[str, set[str]] = {}
    for engine in report_engines:
        helped = {name for name in engine["models"] if name in lacking}
        if engine["ready"] or not helped:
            continue
        for command, provider in _of_engine(engine, servers):
            (providers if provider else better).setdefault(command, set()).update(helped)
    tasks = {command: _task_names(helped, unserved) for command, helped in better.items()}
    ordered = sorted(
        better, key=lambda command: (tasks[command][0] not in unserved, _rank(command), -len(better[command]))
    )
    result = {command: tasks[command] for command in ordered}
    if providers:
        names = list(providers)
        choices = names if len(names) <= _NAMED_PROVIDERS else [*names[:_NAMED_PROVIDERS], "…"]
        command = f"sixfold provider set {'|'.join(choices)}"
        result[command] = _task_names(set().union(*providers.values()), unserved)
    return result


def _of_engine(engine: Row, servers: Sequence[Row]) -> Iterator[tuple[str, bool]]:
    """Yield pairs of a command that would make an engine ready, and whether it is the name of a provider."""
    unlock = str(engine["unlock"])
    if engine["kind"] == "relay":
        yield from ((command, False) for command in _of_gateway(unlock, servers))
        yield from ((name, True) for name in CHAT_PROVIDERS)
    elif unlock in _KEYS:
        yield _KEYS[unlock], True
    elif engine["kind"] == "comfyui":
        comfyui = next((row for row in servers if row["kind"] == "comfyui"), None)
        is_found = comfyui is not None and comfyui["found"]
        model = _COMFYUI.fullmatch(unlock)
        yield (f"add {model[1]} to ComfyUI" if is_found and model else "start ComfyUI"), False
    elif unlock:
        yield _as_command(unlock), False


def _of_gateway(unlock: str, servers: Sequence[Row]) -> Iterator[str]:
    names = {row["name"] for row in servers if row["kind"] == "chat" and row["found"]}
    pull = _PULL.search(unlock)
    yield (
        pull[1]
        if pull and any("Ollama" in name for name in names)
        else "start Ollama (or llama-server, vLLM)"
    )
    if not names or _ADD_CHAT in unlock:
        yield _ADD_CHAT


def _as_command(unlock: str) -> str:
    if matched := _INSTALL.fullmatch(unlock):
        then = f" && {matched[2]}" if matched[2] else ""
        return f"pip install '{matched[1]}'{then}"
    matched = _RUN.fullmatch(unlock)
    return " && ".join(filter(None, matched.groups())) if matched else unlock


def _rank(command: str) -> int:
    for rank, beginning in enumerate(("start Ollama", "ollama pull", _ADD_CHAT, "start ComfyUI")):
        if command.startswith(beginning):
            return rank
    # Long instructions, which need manual setup, come after single commands.
    return 3 if len(command) <= _LONG_COMMAND else 4


def _task_names(models: set[str], first: Collection[str]) -> list[str]:
    tasks = {task_of(model) for model in models}
    return sorted((task for task in (*TASKS, OTHERS) if task in tasks), key=lambda task: task not in first)


def unlocking(all_ways: Mapping[str, list[str]], width: int, lines: int) -> list[str]:
    """Return at most `lines` lines of a command and its tasks; the last command is always included."""
    pairs = list(all_ways.items())
    short = pairs if len(pairs) <= lines else [*pairs[: lines - 1], *pairs[-1:]]
    columns = min(max((len(command) for command, _ in short), default=0), _COMMAND_COLUMNS)
    result: list[str] = []
    for command, tasks in short:
        lead = f"{_GAP}{command.ljust(columns)}{_GAP}"
        available = max(width - len(lead), 1)
        result.append(cut(lead + cut(fitted(tasks, available), available), width))
    return result
