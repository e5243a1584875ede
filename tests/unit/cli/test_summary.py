"""Summaries of `doctor` and `engines list`: available models first, within the terminal's width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold import settings
from sixfold.app import catalog as app_catalog
from sixfold.cli.doctor import summary
from sixfold.core.catalog.tasks import TASKS
from tests.unit.cli.conftest import inside, program

EVERY_KEY = {
    "FAL_KEY": "fal-key-1",
    "REPLICATE_API_TOKEN": "replicate-key-1",
    "OPENAI_API_KEY": "openai-key-1",
    "ANTHROPIC_API_KEY": "anthropic-key-1",
}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut texts as on a terminal of 80 columns, and do not look for model servers."""
    monkeypatch.setattr("sixfold.cli.doctor.text._columns", lambda _paint: 80)
    monkeypatch.setenv("SIXFOLD_PROBE", "0")


@pytest.mark.usefixtures("terminal")
def test_summary_with_every_key_fits_40_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in EVERY_KEY.items():
        monkeypatch.setenv(name, value)
    lines = inside(tmp_path / "data", "doctor").out.splitlines()
    assert len(lines) <= 40
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("words", [("doctor",), ("engines", "list")], ids=" ".join)
def test_summary_is_not_cut_without_a_terminal(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = program(tmp_path / "data", *words, **EVERY_KEY)
    assert result.status == 0
    assert [line for line in result.out.splitlines() if line.endswith("…")] == []


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("words", [("doctor",), ("engines", "list")], ids=" ".join)
def test_summary_of_a_fresh_machine_fits_40_lines_of_80(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = inside(tmp_path / "data", *words)
    lines = result.out.splitlines()
    assert (result.status, result.err) == (0, "")
    assert len(lines) <= 40
    assert [line for line in lines if len(line) > 80] == []
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("terminal")
def test_doctor_in_a_container_fits_40_lines_of_80(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sixfold.clients.hosts.in_container", lambda: True)
    lines = inside(tmp_path / "data", "doctor").out.splitlines()
    assert len(lines) <= 40
    assert [line for line in lines if len(line) > 80] == []
    assert any("Model servers are searched at host.docker.internal" in line for line in lines)


def test_doctor_lists_available_models_before_missing_ones(tmp_path: Path) -> None:
    text = program(tmp_path / "data", "doctor").out
    works, missing = text.index("Works now"), text.index("To unlock more")
    assert works < text.index("text to image      ra1, ra2, anime, +7") < missing
    assert "scene-painter (preview)" in text[works:missing]
    for command in (
        "start Ollama",
        "start ComfyUI",
        "sixfold engines add image",
        "sixfold provider set fal|",
    ):
        assert missing < text.index(command)
    assert "sixfold doctor --all" in text.splitlines()[-1]


def test_all_shows_every_model_and_engine(tmp_path: Path) -> None:
    configured = settings.load({}, data_dir=tmp_path)
    catalog = app_catalog.catalog(configured, app_catalog.price_table(configured))
    output = program(tmp_path / "data", "doctor", "--all").out
    assert [model.name for model in catalog.models() if model.name not in output] == []
    engines = program(tmp_path / "data", "engines", "list", "--all").out
    assert [name for name in catalog.engines() if name not in engines] == []
    marks = [line.split()[0] for line in engines.splitlines()[1:] if line.strip()]
    # Ready engines come first.
    assert marks == sorted(marks, key="●○".index)


def test_every_model_has_a_task_of_the_list(tmp_path: Path) -> None:
    configured = settings.load({}, data_dir=tmp_path)
    models = app_catalog.catalog(configured, app_catalog.price_table(configured)).models()
    assert [model.name for model in models if model.task not in TASKS] == []
    assert {model.task for model in models} == set(TASKS)


@pytest.mark.parametrize(
    ("width", "text"), [(40, "ra1, ra2, anime"), (14, "ra1, ra2, +1"), (9, "ra1, +2"), (1, "ra1, +2")]
)
def test_names_beyond_the_width_are_counted(width: int, text: str) -> None:
    assert summary.fitted(["ra1", "ra2", "anime"], width) == text


def engine(kind: str, unlock: str, *models: str, ready: bool = False) -> dict[str, Any]:
    return {"engine": f"{kind}-1", "kind": kind, "unlock": unlock, "models": list(models), "ready": ready}


def model(name: str, quality: str | None) -> dict[str, Any]:
    return {"model": name, "quality": quality, "engine": None if quality is None else "some"}


MODELS = [model("ra1", "preview"), model("chat", None), model("stt", "full"), model("video-a", "preview")]
COMFYUI = "start ComfyUI with Wan 2.1 (SIXFOLD_COMFYUI_URL)"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (engine("weights", "run `sixfold engines add image`", "ra1"), {"sixfold engines add image": "ra1"}),
        (
            engine("weights", "install `sixfold[onnx]` and run `sixfold engines add depth`", "ra1"),
            {"pip install 'sixfold[onnx]' && sixfold engines add depth": "ra1"},
        ),
        (engine("provider", "set FAL_KEY", "video-a"), {"sixfold provider set fal": "video-a"}),
        (engine("comfyui", COMFYUI, "video-a"), {"start ComfyUI": "video-a"}),
        (engine("weights", "run `sixfold engines add image`", "stt"), {}),
        (engine("weights", "run `sixfold engines add image`", "ra1", ready=True), {}),
    ],
    ids=["command", "package-and-command", "key", "comfyui", "full-already", "ready-already"],
)
def test_remedy_is_a_command_with_the_tasks_it_unlocks(row: dict[str, Any], expected: dict[str, str]) -> None:
    result = summary.unlocking_commands([row], MODELS, [])
    assert result == {command: [summary.task_of(name)] for command, name in expected.items()}


def test_remedy_for_a_running_comfyui_is_to_add_a_model() -> None:
    results = [{"kind": "comfyui", "found": "0.8.0 at http://127.0.0.1:8188"}]
    assert list(summary.unlocking_commands([engine("comfyui", COMFYUI, "video-a")], MODELS, results)) == [
        "add Wan 2.1 to ComfyUI"
    ]


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("relay", ["ollama pull qwen3", "sixfold engines add chat"]),
        ("relay-vision", ["ollama pull qwen3-vl"]),
    ],
)
def test_remedy_for_a_running_ollama_is_to_add_a_model(
    tmp_path: Path, name: str, commands: list[str]
) -> None:
    configured = settings.load({}, data_dir=tmp_path)
    spec = app_catalog.catalog(configured, app_catalog.price_table(configured)).engines()[name]
    results = [{"name": "Ollama", "kind": "chat", "found": "at http://127.0.0.1:11434"}]
    ways = summary.unlocking_commands([engine("relay", spec.unlock, "chat")], MODELS, results)
    assert list(ways) == [*commands, "sixfold provider set openai|anthropic|azure|…"]


def test_unserved_models_are_listed_before_previews() -> None:
    rows = [
        engine("comfyui", COMFYUI, "ra1", "video-a"),
        engine("weights", "run `sixfold engines add image`", "ra1", "training"),
        engine("weights", "install the package of a very long name that one has to set up by hand", "chat"),
    ]
    ways = summary.unlocking_commands(rows, [*MODELS, model("training", None)], [])
    assert list(ways)[-1] == "start ComfyUI"
    assert ways["sixfold engines add image"] == ["training", "text to image"]


def test_model_servers_come_first_and_paid_option_is_listed() -> None:
    rows = [
        engine("provider", "set OPENAI_API_KEY", "ra1"),
        *(engine("weights", f"run `sixfold engines add {name}`", "ra1") for name in "abcdef"),
        engine("relay", "anything", "chat"),
    ]
    lines = summary.unlocking(summary.unlocking_commands(rows, MODELS, []), 80, 4)
    assert [line.split("  ")[1] for line in lines] == [
        "start Ollama (or llama-server, vLLM)",
        "sixfold engines add chat",
        "sixfold engines add a",
        "sixfold provider set openai|anthropic|azure|…",
    ]
