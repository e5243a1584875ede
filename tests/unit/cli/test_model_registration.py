"""`model add` and `model remove` wait for the running server, which the tests replace by rows and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import settings
from sixfold.cli import database_access, server_lock
from sixfold.cli.model import registration
from sixfold.cli.terminal import CommandError
from sixfold.core.accounts import accounts, audit_log
from sixfold.core.database import Query, Transaction
from sixfold.settings import Settings
from tests.harness import backends
from tests.unit.cli.conftest import inside

NAME = "greet"
ENTRY = {"version": "abc", "hardware": ""}
GREET = '''
import sixfold

@sixfold.model(name="greet")
def greet(name: str) -> str:
    """Say hello."""
    return f"hello {name}"
'''


class ServerSteps:
    """A clock whose pauses take no time; `step` runs in each pause as the running server would."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step: Callable[[float], None] = lambda _now: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.step(self.now)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> ServerSteps:
    clock = ServerSteps()
    monkeypatch.setattr(registration, "time", clock)
    monkeypatch.setattr(registration, "_PAUSE_SECONDS", 1.0)
    return clock


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Settings]:
    """Yield the settings of a folder on which a server runs."""
    server_settings = settings.load(data_dir=tmp_path, database_url="")
    database_access.write(server_settings, accounts.create("local@localhost", operator=True), make=True)
    (tmp_path / "models").mkdir()
    with server_lock.hold(tmp_path) as lock:
        lock.write_url("http://127.0.0.1:8600", on_postgres=False)
        yield server_settings


def store(server_settings: Settings, document: dict[str, Any]) -> None:
    """Store the newest version of the model as the server does."""

    def transaction() -> Transaction[None]:
        operator = yield from accounts.operator()
        assert operator is not None
        text = {"kind": "model", "document": json.dumps(document), "training_id": None}
        yield Query("custom_model_insert", {"account_id": operator.id, "name": NAME, **text})

    database_access.write(server_settings, transaction())


def document_of_file(version: str) -> dict[str, Any]:
    engine = {"version": version}
    return {"file": f"{NAME}.py", "engines": {NAME: engine}, "models": {NAME: {"hardware": None}}}


def document_of_image() -> dict[str, Any]:
    """Return the document of an image, whose engine has the name `cog` and whose model may lack hardware."""
    return {"engines": {"cog": {"version": "1"}}, "models": {NAME: {}}}


def target_of(server_settings: Settings) -> Path:
    return server_settings.data_dir / "models" / f"{NAME}.py"


def error_file(server_settings: Settings) -> Path:
    target = target_of(server_settings)
    return target.with_name(f"{target.name}.error")


def test_wait_ends_when_the_version_is_registered(served: Settings, steps: ServerSteps) -> None:
    store(served, document_of_file("older"))
    steps.step = lambda now: store(served, document_of_file("abc")) if now == 2 else None
    registration.wait_until_added(served, target_of(served), NAME, ENTRY)
    assert steps.now == 2


def test_image_with_the_same_name_is_replaced_by_a_file(served: Settings, steps: ServerSteps) -> None:
    store(served, document_of_image())
    steps.step = lambda now: store(served, document_of_file("abc")) if now == 1 else None
    registration.wait_until_added(served, target_of(served), NAME, ENTRY)
    assert steps.now == 1


def test_rejection_that_remains_is_reported(served: Settings, steps: ServerSteps) -> None:
    error_file(served).write_text("line 1: invalid syntax\n", "utf-8")
    with pytest.raises(CommandError, match=r"The server rejects greet\.py: line 1: invalid syntax"):
        registration.wait_until_added(served, target_of(served), NAME, ENTRY)
    assert steps.now < 10


def test_rejection_of_an_earlier_version_is_ignored(served: Settings, steps: ServerSteps) -> None:
    error_file(served).write_text("line 1: invalid syntax\n", "utf-8")

    def step(now: float) -> None:
        if now == 1:
            error_file(served).unlink()
        elif now == 4:
            store(served, document_of_file("abc"))

    steps.step = step
    registration.wait_until_added(served, target_of(served), NAME, ENTRY)
    assert steps.now == 4


def test_wait_for_a_removal_ends_when_no_model_has_the_file(served: Settings, steps: ServerSteps) -> None:
    store(served, document_of_file("abc"))
    steps.step = lambda now: store(served, document_of_image()) if now == 2 else None
    registration.wait_until_removed(served, target_of(served))
    assert steps.now == 2


@pytest.mark.usefixtures("steps")
def test_note_is_printed_when_the_time_to_wait_ends(
    served: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    registration.wait_until_added(served, target_of(served), NAME, ENTRY)
    assert "has not registered greet within 30 seconds" in capsys.readouterr().err
    store(served, document_of_file("abc"))
    registration.wait_until_removed(served, target_of(served))
    assert "has not removed the model of greet.py within 30 seconds" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("add", "source.py"), ("remove", NAME)])
def test_files_are_unchanged_if_the_server_uses_another_database(
    tmp_path: Path, words: tuple[str, str]
) -> None:
    source, folder = tmp_path / "source.py", tmp_path / "data"
    source.write_text(GREET, "utf-8")
    (folder / "models").mkdir(parents=True)
    target = folder / "models" / ("greet.py" if words[0] == "remove" else "other.py")
    target.write_text(GREET, "utf-8")
    argument = str(source) if words[0] == "add" else words[1]
    with server_lock.hold(folder) as lock:
        lock.write_url("http://127.0.0.1:8600", on_postgres=True)
        result = inside(folder, "model", words[0], argument)
    assert result.status == 1
    assert "uses PostgreSQL: set SIXFOLD_DATABASE_URL" in result.err
    assert [path.name for path in (folder / "models").iterdir()] == [target.name]


def test_removal_of_an_image_is_audited(either: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = backends.database_url(either)
    monkeypatch.setenv("SIXFOLD_DATABASE_URL", url)
    server_settings = settings.load(data_dir=either, database_url=url)
    operator = accounts.create("local@localhost", operator=True)
    account = database_access.write(server_settings, operator, make=True)
    model = {"description": "", "inputs": {}, "output_kind": "text"}
    store(server_settings, {"engines": {"cog": {"version": "1"}}, "models": {NAME: model}})
    result = inside(either, "model", "remove", NAME)
    assert (result.status, result.out) == (0, f"  removed {NAME}\n"), result.err
    page = database_access.read(server_settings, audit_log.page(account.id, 10, None))
    assert ("model.remove", NAME) in [(row["action"], row["detail"]) for row in page.entries]


def test_entry_is_written_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source.py"
    source.write_text(GREET, "utf-8")
    replaced: list[str] = []
    replace = Path.replace

    def record(path: Path, target: Path) -> Path:
        replaced.append(target.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", record)
    result = inside(tmp_path / "data", "model", "add", str(source))
    assert result.status == 0, result.err
    assert [name for name in replaced if name in ("added.json", "greet.py")] == ["added.json", "greet.py"]
