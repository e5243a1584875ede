"""`sixfold archive`: list, verify and show, also after a backup was restored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.e2e import retention_child
from tests.harness.pipeline import running_pipeline
from tests.unit.cli.conftest import Commands

RUNS = 3


async def archived(folder: Path) -> list[str]:
    """Run some predictions and archive them with their charges; return their ids."""
    async with running_pipeline(folder) as pipeline:
        names = [(await pipeline.run(extras={"n": number})).id for number in range(RUNS)]
        await retention_child.sweep(pipeline.database, folder)
    return names


@pytest.fixture
def sixfold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(tmp_path / "data", capsys)


def test_archive_is_listed_verified_and_shown(sixfold: Commands, tmp_path: Path) -> None:
    assert "The archive is empty" in sixfold_of_new(sixfold)
    names = asyncio.run(archived(sixfold.folder))
    rows = sixfold.ok("archive", "list")["segments"]
    assert [row["kind"] for row in rows] == ["predictions", "audit", "ledger"]
    check = sixfold.ok("archive", "verify")
    assert (check["ok"], check["segments"], check["charges"]) == (True, 3, RUNS)
    assert check["head"] == rows[-1]["hash"]
    assert check["head"] in sixfold("archive", "verify").out
    lines = [json.loads(line) for line in sixfold("archive", "show", names[0]).out.splitlines()]
    assert [(line["segment"], line["table"]) for line in lines] == [(1, "prediction"), (3, "transfer")]
    assert "is not in the archive" in sixfold.error_of("archive", "show", "pred_nothing")
    assert f"also with {RUNS} charges of the archive" in sixfold("ledger", "verify").out

    sixfold.ok("backup", str(tmp_path / "all.tar"))
    restored = Commands(tmp_path / "restored", sixfold.capsys)
    restored.ok("restore", str(tmp_path / "all.tar"), "--verify")
    assert restored.ok("archive", "verify") == check


def sixfold_of_new(sixfold: Commands) -> str:
    sixfold.ok("account", "create", "ann@example.com")
    return sixfold("archive", "list").out


def test_missing_segment_file_fails_the_verification(sixfold: Commands) -> None:
    asyncio.run(archived(sixfold.folder))
    blob = sixfold.ok("archive", "list")["segments"][-1]["blob"]
    (sixfold.folder / "store" / blob).unlink()
    for words in (("archive", "verify"), ("ledger", "verify")):
        result = sixfold(*words)
        assert result.status == 1
        assert "archive segment 3: its file is missing" in result.err
