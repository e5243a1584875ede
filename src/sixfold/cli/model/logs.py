"""`model logs`: print the output of a custom model, the results of its runs and errors in its file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sixfold import settings
from sixfold.cli.client import TERMINAL, Document, ServerClient, local_time
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core.humanize import duration

_MAX_RUNS = 200
_POLL_SECONDS = 0.5
_FILE_PREFIX = "file:"


def logs(arguments: argparse.Namespace) -> None:
    """Run `model logs`: print the last runs, oldest first; `--follow` continues with new lines."""
    if not 1 <= arguments.limit <= _MAX_RUNS:
        raise CommandError(f"--limit must be from 1 to {_MAX_RUNS} (got {arguments.limit})")
    log = _LogFile(
        ServerClient.of(arguments), arguments.name, settings.load(data_dir=arguments.data_dir).data_dir
    )
    if not arguments.follow:
        _show(log, arguments)
        return
    output = _LogLines(log) if arguments.json else _LogText(log)
    output.fault(log.fault())
    for run in log.follow(arguments.limit, output):
        output.finish(run)


def _show(log: _LogFile, arguments: argparse.Namespace) -> None:
    fault, runs = log.fault(), log.runs(arguments.limit)
    if not runs and not fault:
        log.require()
    if arguments.json:
        put_json({"model": log.name, "fault": fault or None, "runs": [_run(run) for run in runs]})
        return
    words = _LogText(log)
    for run in runs:
        words.began(run)
        for line in _printed(run):
            words.line(line)
        words.finish(run)
    words.fault(fault)
    if not runs:
        words.paint.line(f"  {log.name} has not run yet: `sixfold run {log.name}`")


class _LogFile:
    """The runs of one model, from the server, and the error of its file, from the models folder."""

    def __init__(self, client: ServerClient, name: str, data_dir: Path) -> None:
        self.name = name
        self.client = client
        self._folder = data_dir / "models"
        self._file = ""

    def require(self) -> None:
        """Raise `CommandError` if the server does not have the model."""
        self.client.get(f"/api/containers/templates/{quote(self.name, safe='')}")

    def fault(self) -> str:
        """Return the error that the server wrote beside the model's file, or an empty string."""
        path = self._folder / f"{self._file_name()}.error"
        try:
            return path.read_text("utf-8").strip()
        except OSError:
            return ""

    def _file_name(self) -> str:
        """Return the name of the model's file, which may differ from the name of the model."""
        if not self._file:
            answer = self.client.ask("GET", f"/api/containers/templates/{quote(self.name, safe='')}")
            image = answer.document.get("image") if isinstance(answer.document, dict) else None
            has_file = isinstance(image, str) and image.startswith(_FILE_PREFIX)
            self._file = str(image).removeprefix(_FILE_PREFIX) if has_file else f"{self.name}.py"
        return Path(self._file).name

    def runs(self, limit: int) -> list[Document]:
        """Return the last `limit` runs, oldest first."""
        path = f"/api/containers/predictions?model={quote(self.name, safe='')}&limit={limit}"
        return list(reversed(self.client.get(path)["predictions"]))

    def follow(self, limit: int, output: _LogLines | _LogText) -> Iterator[Document]:
        """Yield each run after its end, forever; its lines are printed while it runs."""
        printed_lines: set[str] = set()
        while True:
            for run in self.runs(limit):
                if run["id"] not in printed_lines:
                    printed_lines.add(run["id"])
                    output.began(run)
                    yield self._follow_run(run, output)
            limit = _MAX_RUNS
            time.sleep(_POLL_SECONDS)
            output.fault(self.fault())

    def _follow_run(self, run: Document, output: _LogLines | _LogText) -> Document:
        printed = 0
        while run["status"] not in TERMINAL:
            for event in self.client.events(str(run["id"])):
                if isinstance(line := event.get("line"), str):
                    printed += 1
                    output.line(line)
            run = self.client.prediction(str(run["id"]))
        for line in _printed(run)[printed:]:
            output.line(line)
        return run


class _LogText:
    """Text output: a line for each run, its printed lines, then its error."""

    def __init__(self, log: _LogFile) -> None:
        self.paint = TerminalStyle()
        self._name = log.name
        self._fault = ""

    def began(self, run: Document) -> None:
        self.paint.line(
            f"{local_time(run, 'created_at'):%Y-%m-%d %H:%M:%S}  {self.paint.bold(str(run['id']))}"
        )

    def line(self, text: str) -> None:
        """Print one line of the run's output."""
        self.paint.line(f"  {text}")

    def finish(self, run: Document) -> None:
        """Print the status of the run, its duration and its error."""
        took = (run.get("metrics") or {}).get("predict_ms")
        after = f" after {duration(float(took))}" if took else ""
        self.paint.line(f"  {self.paint.dim(str(run['status']) + after)}")
        if run.get("error"):
            self.paint.line(f"  {run['error']}")

    def fault(self, fault: str) -> None:
        """Print the error of the model's file if it has changed."""
        if fault != self._fault:
            self._fault = fault
            self.paint.line(f"{self._name}: {fault or 'the file is fixed'}")


class _LogLines:
    """JSON output: one object per line for each finished run and each change of the file's error."""

    def __init__(self, log: _LogFile) -> None:
        self._name = log.name
        self._fault = ""

    def began(self, run: Document) -> None:
        """Do nothing: a run is printed when it has ended."""

    def line(self, text: str) -> None:
        """Do nothing: the lines are part of the run."""

    def finish(self, run: Document) -> None:
        _put(_run(run))

    def fault(self, fault: str) -> None:
        """Print the error of the model's file if it has changed; null when it is fixed."""
        if fault != self._fault:
            self._fault = fault
            _put({"model": self._name, "fault": fault or None})


def _printed(run: Document) -> list[str]:
    return str(run.get("logs") or "").splitlines()


def _run(run: Document) -> dict[str, Any]:
    fields = ("id", "status", "error", "attempt", "created_at", "started_at", "completed_at")
    return {**{name: run.get(name) for name in fields}, "logs": _printed(run)}


def _put(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()
