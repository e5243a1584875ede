"""`sixfold model logs`: output, errors and file errors of an author's model, as they occur."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import processes
from tests.unit.cli.conftest import Starter, inside, minimal

pytestmark = pytest.mark.slow  # each test starts programs

SPEAKER = '''from sixfold import model


@model
def speaker(word: str) -> str:
    """Say a word."""
    print(f"asked for {word}")
    if word == "swan":
        raise ValueError("no swans here")
    return word
'''


def test_author_sees_prints_exceptions_and_file_errors(start: Starter, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (tmp_path / "speaker.py").write_text(SPEAKER)
    start(folder, SIXFOLD_SANDBOX="off")
    assert "Model speaker not found" in inside(folder, "model", "logs", "speaker").err
    assert inside(folder, "model", "add", str(tmp_path / "speaker.py")).status == 0
    assert inside(folder, "run", "speaker", "word=duck").status == 0
    assert inside(folder, "run", "speaker", "word=swan").status == 1

    response = inside(folder, "model", "logs", "speaker", "--json").json
    assert (response["model"], response["fault"]) == ("speaker", None)
    duck, swan = response["runs"]
    assert (duck["status"], duck["error"], duck["logs"]) == ("succeeded", None, ["asked for duck"])
    assert (swan["status"], swan["error"]) == ("failed", "ValueError: no swans here")
    assert swan["logs"][0] == "asked for swan"
    assert "line 9" in "\n".join(swan["logs"][1:])
    words = inside(folder, "model", "logs", "speaker", "--limit", "1").out
    assert "duck" not in words
    assert "  ValueError: no swans here\n" in words

    following = subprocess.Popen(
        [sys.executable, "-m", "sixfold.cli.main", "model", "logs", "speaker", "--follow", "--json"],
        env=minimal(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert following.stdout is not None
    assert [json.loads(following.stdout.readline())["id"] for _ in range(2)] == [duck["id"], swan["id"]]
    assert inside(folder, "run", "speaker", "word=goose").status == 0
    assert json.loads(following.stdout.readline())["logs"] == ["asked for goose"]
    (folder / "models" / "speaker.py").write_text("def (\n")
    text = json.loads(following.stdout.readline())
    assert text == {"model": "speaker", "fault": "line 1: invalid syntax"}
    assert processes.stop(following, signal.SIGINT) == 130
    assert "speaker: line 1: invalid syntax" in inside(folder, "model", "logs", "speaker").out
