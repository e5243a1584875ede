"""Completion in a real bash; the scripts of the other shells name every command too."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from sixfold.cli.completion import positions
from sixfold.cli.main import build_parser
from tests.unit.cli.conftest import Commands

bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")


def script(sixfold: Commands, shell: str) -> str:
    result = sixfold("completion", shell)
    assert result.status == 0
    return result.out


def complete(text: str, folder: Path, *words: str) -> list[str]:
    """Return bash's completions of the last word."""
    request = " ".join(shlex.quote(word) for word in ("sixfold", *words))
    script = """printf '%s\\n' "${COMPREPLY[@]}" """
    lines = [text, f"COMP_WORDS=({request})", f"COMP_CWORD={len(words)}", "_sixfold", script]
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert result.stderr == ""
    return result.stdout.split()


@bash
def test_bash_completes_commands_options_choices_and_files(sixfold: Commands, tmp_path: Path) -> None:
    text = script(sixfold, "bash")
    (tmp_path / "photo.jpg").touch()
    assert complete(text, tmp_path, "acc") == ["account"]
    assert complete(text, tmp_path, "account", "cre") == ["create", "credit"]
    assert complete(text, tmp_path, "account", "create", "a@b.c", "--cr") == ["--credit"]
    assert complete(text, tmp_path, "provider", "set", "rep") == ["replicate"]
    assert complete(text, tmp_path, "completion", "") == ["bash", "zsh", "fish"]
    assert complete(text, tmp_path, "run", "bg-rem") == ["bg-remover"]
    assert complete(text, tmp_path, "workflow", "run", "sound") == ["sound-effects"]
    assert complete(text, tmp_path, "run", "bg-remover", "image", "=", "@pho") == ["@photo.jpg"]
    assert "serve" in complete(text, tmp_path, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_every_command_and_option(sixfold: Commands, shell: str) -> None:
    text = script(sixfold, shell)
    for context in positions(build_parser()):
        for word in (*context.next, *context.options):
            assert (word if shell == "zsh" else word.removeprefix("--")) in text
        assert context.path in text


def test_every_non_serving_command_has_json_output() -> None:
    known = tuple(positions(build_parser()))
    groups = {context.path.rpartition(" ")[0] for context in known}
    mute = {
        context.path for context in known if "--json" not in context.options and context.path not in groups
    }
    assert mute == {" serve", " worker", " mcp", " completion"}


def test_unsupported_shell_exits_with_status_2(sixfold: Commands) -> None:
    assert sixfold("completion", "cmd").status == 2
