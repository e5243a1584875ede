"""`sixfold run` with a real server: requests, saved files, images and messages."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.harness import processes
from tests.unit.cli.conftest import CommandResult, Server, Starter, inside, minimal, program

pytestmark = pytest.mark.slow  # each test starts programs
SMALL = ("width=64", "height=64")


def run(server: Server, *words: str, **environ: str) -> CommandResult:
    if environ:
        return program(server.folder, "run", *words, **environ)
    return inside(server.folder, "run", *words)


def size_of(png: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", png.read_bytes()[16:24])
    return width, height


def test_run_saves_the_image_and_prints_the_receipt(server: Server, tmp_path: Path) -> None:
    words = ("ra2", "prompt=a hill", "seed=1", *SMALL, "-o", str(tmp_path / "hill.png"))
    result = program(server.folder, "run", *words)
    assert (result.status, result.err) == (0, "")
    assert size_of(tmp_path / "hill.png") == (64, 64)
    assert "priced      held        queued      run         stored      captured" in result.out
    assert "0.04 USD" in result.out
    assert [path.name for path in tmp_path.iterdir()] == ["hill.png"]


def test_json_output_has_the_prediction_and_the_files(server: Server, tmp_path: Path) -> None:
    result = run(server, "anime", "prompt=a cat", "num_images=2", "-o", f"{tmp_path}/out/", "--json")
    assert result.status == 0
    assert result.json["status"] == "succeeded"
    assert result.json["cost"] == "0.014"
    assert [step["name"] for step in result.json["receipt"]][-1] == "captured"
    assert sorted(result.json["files"]) == sorted(str(path) for path in (tmp_path / "out").iterdir())
    assert len(result.json["files"]) == 2


def test_sizes_are_separated_by_commas(server: Server, tmp_path: Path) -> None:
    run(server, "ra2", "prompt=a cat", *SMALL, "-o", str(tmp_path / "cat.png"))
    image = f"image_url=@{tmp_path / 'cat.png'}"
    words = ("smart-resize", image, "target_sizes=32x16, 16x16", "-o", f"{tmp_path}/out/", "--json")
    result = run(server, *words)
    assert (result.status, len(result.json["files"])) == (0, 2)


def test_several_output_files_are_numbered(server: Server, tmp_path: Path) -> None:
    run(server, "anime", "prompt=a cat", "num_images=2", "-o", str(tmp_path / "cat.png"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cat-1.png", "cat-2.png"]


def test_non_file_output_is_saved_to_the_named_path(server: Server, tmp_path: Path) -> None:
    order = ("motion-model", "prompt=walk", "steps=2")
    result = run(server, *order)
    assert '"pelvis"' in result.out
    remaining = run(server, *order, "-o", str(tmp_path / "poses"))
    assert '"pelvis"' not in remaining.out
    assert str(tmp_path / "poses.json") in remaining.out
    assert [pose["t"] for pose in json.loads((tmp_path / "poses.json").read_text())] == [50, 100]


def test_file_argument_is_uploaded(server: Server, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    run(server, "ra2", "prompt=a hill", *SMALL, "-o", str(photo))
    words = (f"source_image_url=@{photo}", "style_prompt=watercolor", "-o", str(tmp_path / "styled"))
    assert run(server, "style-transfer", *words).status == 0
    assert (tmp_path / "styled.webp").exists()


def test_prompt_can_begin_with_an_at_sign(server: Server) -> None:
    result = run(server, "ra2", "prompt=@home", *SMALL, "--json", "-o", str(server.folder.parent / "at.png"))
    assert result.json["input"]["prompt"] == "@home"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "No model was specified"),
        (("nothing",), "Model nothing not found"),
        (("ra1",), "prompt is required"),
        (("ra1", "prompt"), "must be NAME=VALUE"),
        (("ra1", "color=red"), "ra1 does not have the input color; its inputs are prompt"),
        (("ra1", "prompt=x", "seed=many"), "must be a whole number"),
        (("ra1", "prompt=x", "enable_safety_checker=maybe"), "must be true or false"),
        (("ra1", "prompt=x", "size=9x9"), "size must be one of"),
        (("style-transfer", "source_image_url=@/nowhere.png"), "file /nowhere.png does not exist"),
        (("ra1", "prompt=x", "-o", "/nowhere/x.png"), "Folder /nowhere for the output does not exist"),
        (("ra1", "prompt=x", "--api-url", "gopher://x"), "is not a URL"),
    ],
)
def test_failed_run_prints_one_sentence(server: Server, words: tuple[str, ...], sentence: str) -> None:
    result = run(server, *words)
    assert result.status == 1
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1
    assert result.out == ""


def test_wrong_key_is_named_in_the_error(server: Server) -> None:
    result = run(server, "ra1", "prompt=x", SIXFOLD_API_KEY="sf_wrong")
    assert result.status == 1
    assert "does not accept this key" in result.err


def test_run_without_a_server_names_the_command_to_start_one(tmp_path: Path) -> None:
    result = program(tmp_path, "run", "ra1", "prompt=x", SIXFOLD_PORT="9")
    assert result.status == 1
    assert "start one with `sixfold serve`" in result.err


def test_local_key_is_not_sent_to_other_hosts(tmp_path: Path) -> None:
    (tmp_path / "local.key").write_text("sf_secret\n")
    code = (
        "import argparse;from sixfold.cli.client import ServerClient;"
        "print([ServerClient.of(argparse.Namespace(data_dir=None, api_url=url))._api_key for url in"
        " ('http://127.0.0.1:1', 'http://six.example', None)])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=minimal(tmp_path), capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "['sf_secret', None, 'sf_secret']"


def test_every_model_is_listed_with_its_inputs(server: Server) -> None:
    models = program(server.folder, "run", "--list", "--json").json["models"]
    inputs = {model["model"]: [item["name"] for item in model["inputs"]] for model in models}
    assert inputs["ra1"] == ["prompt", "size", "seed", "enable_safety_checker"]
    text = program(server.folder, "run", "--list").out
    assert all(f"  {name}  " in text for name in inputs)


def test_predictions_are_listed_newest_first_with_receipts(server: Server) -> None:
    target = str(server.folder.parent / "p.png")
    results = [run(server, "ra2", "prompt=x", *SMALL, "-o", target, "--json").json["id"] for _ in range(2)]
    predictions = program(server.folder, "predictions", "--limit", "2", "--json").json["predictions"]
    assert [row["id"] for row in predictions] == results[::-1]
    assert results[0] in program(server.folder, "predictions").out
    result = program(server.folder, "predictions", results[0])
    assert "captured" in result.out
    assert result.status == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("pred_none",), "Prediction not found"),
        (("cancel",), "The ID is missing"),
        (("cancel", "pred_none"), "Prediction not found"),
        (("cancel", "a", "b"), "predictions cancel ID"),
        (("--limit", "0"), "--limit must be from 1 to 200"),
    ],
)
def test_unknown_predictions_fail_with_one_sentence(
    server: Server, words: tuple[str, ...], sentence: str
) -> None:
    result = program(server.folder, "predictions", *words)
    assert result.status == 1
    assert sentence in result.err


def test_canceled_run_is_free(start: Starter, tmp_path: Path) -> None:
    environ = {"SIXFOLD_TESTING": "1", "SIXFOLD_FAILPOINTS": "engine.run.ra2=hang"}
    server = start(tmp_path / "data", **environ)
    client = subprocess.Popen(
        [sys.executable, "-m", "sixfold.cli.main", "run", "ra2", "prompt=x", *SMALL],
        env=minimal(server.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (rows := program(server.folder, "predictions", "--json").json["predictions"]):
        pass
    assert program(server.folder, "predictions", "cancel", rows[0]["id"]).status == 0
    out, _ = client.communicate(timeout=60)
    assert client.returncode == 1
    assert "canceled: nothing was charged" in out
    body = program(server.folder, "account", "show", "local@localhost", "--json").json
    assert (body["balance_usd"], body["held_usd"]) == ("10.00", "0.00")
    assert program(server.folder, "predictions", rows[0]["id"]).status == 1


def test_interrupted_run_prints_how_to_find_it(start: Starter, tmp_path: Path) -> None:
    environ = {"SIXFOLD_TESTING": "1", "SIXFOLD_FAILPOINTS": "engine.run.ra2=hang"}
    server = start(tmp_path / "data", **environ)
    ours, theirs = os.openpty()
    words = [sys.executable, "-m", "sixfold.cli.main", "run", "ra2", "prompt=x", *SMALL]
    client = processes.start(words, env=minimal(server.folder), stderr=theirs)
    os.close(theirs)
    # The progress bar appears when the client knows the id of its prediction.
    content = os.read(ours, 4096)
    client.send_signal(signal.SIGINT)
    assert client.wait(processes.PATIENCE_SECONDS) == 130
    # The other end of the terminal is closed.
    with contextlib.suppress(OSError):
        while more := os.read(ours, 4096):
            content += more
    os.close(ours)
    (row,) = program(server.folder, "predictions", "--json").json["predictions"]
    assert f"sixfold predictions cancel {row['id']}" in content.decode()


def test_failed_run_prints_its_reason_and_exits_with_1(start: Starter, tmp_path: Path) -> None:
    environ = {"SIXFOLD_TESTING": "1", "SIXFOLD_FAILPOINTS": "engine.run.ra2=fail"}
    server = start(tmp_path / "data", **environ)
    result = run(server, "ra2", "prompt=x", *SMALL, "--json")
    assert result.status == 1
    assert json.loads(result.out)["status"] == "failed"
    assert "failed: nothing was charged" in run(server, "ra2", "prompt=x", *SMALL).out


def test_quote_prints_the_price_without_a_run(server: Server, tmp_path: Path) -> None:
    result = run(server, "bg-remover", f"image=@{_picture(tmp_path)}", "--quote", "--hardware", "gpu-24gb-b")
    assert (result.status, result.err) == (0, "")
    assert "0.09 USD" in result.out  # 0.54 USD an hour for 600 s
    response = run(server, "bg-remover", f"image=@{_picture(tmp_path)}", "--quote", "--json").json
    assert set(response) == {"price_usd", "hold_usd", "eta_seconds", "cold"}
    refused_result = run(
        server, "bg-remover", f"image=@{_picture(tmp_path)}", "--quote", "--hardware", "gpu-9000"
    )
    assert (refused_result.status, "got gpu-9000" in refused_result.err) == (1, True)


def test_a_mounted_file_is_an_input(server: Server, tmp_path: Path) -> None:
    photo = _picture(tmp_path)
    named = ("image=/mnt/sixfold/artifacts/photo", "--mount", f"photo={photo}")
    result = run(server, "bg-remover", *named, "-o", str(tmp_path / "cut.png"))
    assert (result.status, result.err) == (0, "")
    assert size_of(tmp_path / "cut.png") == (64, 64)
    missing = run(server, "bg-remover", "image=x", "--mount", "photo=/nowhere.png")
    assert "must be NAME=FILE with an existing file" in missing.err


def _picture(folder: Path) -> Path:
    path = folder / "photo.png"
    image = np.full((64, 64, 3), 255, np.uint8)
    image[16:48, 16:48] = (30, 60, 200)
    Image.fromarray(image).save(path)
    return path


def test_an_unknown_model_names_the_command_that_lists(server: Server) -> None:
    result = run(server, "zzz", "prompt=a cat")
    assert "`sixfold run --list` lists the models" in result.err
    assert "GET" not in result.err
    workflow = inside(server.folder, "workflow", "run", "turbo")
    assert "Workflow turbo not found: `sixfold workflow list` lists the workflows" in workflow.err


def test_a_suffix_of_another_format_is_reported(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "cat.gif"
    result = run(server, "ra2", "prompt=a cat", *SMALL, "-o", str(path))
    assert (result.status, path.read_bytes()[:4]) == (0, b"\x89PNG")
    assert f"{path} contains image/png, not image/gif: rename it to cat.png" in result.err


OWN_MODEL = '''
import sixfold

@sixfold.model(name="greeter")
def greeter(name: str, times: int = 1, loud: bool = False) -> str:
    """Say hello."""
    text = " ".join([f"hello {name}"] * times)
    return text.upper() if loud else text
'''


@pytest.fixture(scope="module")
def own_server(start: Starter, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A server with a model of its own."""
    server = start(tmp_path_factory.mktemp("own") / "data")
    source = server.folder.parent / "greeter.py"
    source.write_text(OWN_MODEL, "utf-8")
    added = inside(server.folder, "model", "add", str(source))
    assert added.status == 0, added.err
    return server


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("name=5",), "hello 5"),
        (("name=true", "times=2"), "hello true hello true"),
        (("name=1.50", "loud=yes"), "HELLO 1.50"),
    ],
)
def test_own_model_receives_its_input_types(own_server: Server, words: tuple[str, ...], output: str) -> None:
    result = run(own_server, "greeter", *words, "--json")
    assert (result.status, result.json["output"]) == (0, output), result.err


def test_text_output_is_printed_without_escapes(own_server: Server) -> None:
    result = run(own_server, "greeter", 'name="Ann"\n\nand Bob')
    assert result.status == 0, result.err
    assert result.out.endswith('\n\nhello "Ann"\n\nand Bob\n')


def test_options_may_be_between_the_inputs(own_server: Server) -> None:
    result = run(own_server, "greeter", "name=Ann", "--json", "times=2")
    assert (result.status, result.json["output"]) == (0, "hello Ann hello Ann"), result.err
    result = inside(own_server.folder, "workflow", "run", "api-contract", "--json", "text=Ann")
    assert (result.status, result.json["output"]) == (0, "Ann"), result.err


def test_alias_of_an_input_is_accepted(own_server: Server, tmp_path: Path) -> None:
    result = run(own_server, "tts", "text=hello", "-o", f"{tmp_path}/hello.mp3", "--json")
    assert (result.status, result.json["status"]) == (0, "succeeded"), result.err


def test_own_model_is_listed_with_its_inputs(own_server: Server) -> None:
    models = {each["model"]: each for each in run(own_server, "--list", "--json").json["models"]}
    assert [item["name"] for item in models["greeter"]["inputs"]] == ["name", "times", "loud"]
    assert "greeter" in run(own_server, "--list").out
    assert "ra1" in models
    assert "space:api-contract" in models


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("greeter", "nmae=x"), "greeter does not have the input nmae; did you mean name?"),
        (("greeter", "zzz=x"), "greeter does not have the input zzz; its inputs are name, times, loud"),
        (("ra2", "prompt=x", "widht=64"), "ra2 does not have the input widht; did you mean width?"),
        (("greter", "name=x"), "Model greter not found; did you mean greeter?"),
        (("upscalr",), "Model upscalr not found; did you mean upscaler?"),
        (("greeter", "name=x", "times=two"), "times must be a whole number (got 'two')"),
    ],
)
def test_unknown_names_are_refused_before_the_run(
    own_server: Server, words: tuple[str, ...], error: str
) -> None:
    def runs() -> list[str]:
        listed = inside(own_server.folder, "predictions", "--json").json["predictions"]
        return [each["id"] for each in listed]

    before = runs()
    result = run(own_server, *words)
    assert (result.status, result.out) == (1, "")
    assert error in result.err
    assert runs() == before


def test_misspelled_workflow_inputs_and_names_are_refused(own_server: Server) -> None:
    def error(*words: str) -> str:
        result = inside(own_server.folder, "workflow", *words)
        assert result.status == 1
        return result.err

    assert "does not have the input txt; did you mean text?" in error("run", "api-contract", "txt=x")
    assert "Workflow api-contrct not found; did you mean api-contract?" in error("show", "api-contrct")
    assert "did you mean api-contract?" in error("verify", "api-contrct")
    for words in (("remove",), ("copy",), ("rename", "x")):
        assert "Workflow api-contrct not found" in error(words[0], "api-contrct", *words[1:])
    assert "`sixfold workflow list` lists the workflows" in error("remove", "zzz")
    copied = inside(own_server.folder, "workflow", "copy", "api-contract", "--name", "mine").out
    assert "mine" in copied
    assert inside(own_server.folder, "workflow", "remove", "mine", "--json").json == {"removed": "mine"}


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("PreviewAny", ["It can run and costs at most 0.00 USD"]),
        ("Absent", ["Cannot execute because node Absent does not exist. Node ID '#2'", "It cannot run"]),
    ],
)
def test_imported_workflow_is_validated(
    own_server: Server, tmp_path: Path, kind: str, lines: list[str]
) -> None:
    text = {"class_type": "PrimitiveString", "inputs": {"value": "hello"}}
    file = tmp_path / "shown.json"
    file.write_text(json.dumps({"1": text, "2": {"class_type": kind, "inputs": {"source": ["1", 0]}}}))
    result = inside(own_server.folder, "workflow", "import", str(file))
    assert result.status == 0, result.err
    assert result.out.splitlines()[-len(lines) :] == [f"  {line}" for line in lines]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("run", "upscaler", "image=nope.png"), "(got nope.png): NAME=@FILE sends a file"),
        (("workflow", "run", "photoreal-img2img", "image=nope.png", "prompt=x"), "NAME=@FILE sends a file"),
        (
            ("workflow", "rename", "api-contract", "x"),
            "`sixfold workflow copy api-contract` makes a copy of it",
        ),
    ],
)
def test_errors_of_the_server_name_commands(own_server: Server, words: tuple[str, ...], error: str) -> None:
    result = inside(own_server.folder, *words)
    assert result.status == 1
    assert error in result.err
    assert "/api/" not in result.err


def test_ignored_inputs_are_shown_below_the_receipt(own_server: Server) -> None:
    # `create_image` is not in the list of services, so that the command does not know its inputs.
    words = ("create_image", "prompt=a hill", *SMALL, "qualty=3", "-o", f"{own_server.folder.parent}/x.png")
    result = run(own_server, *words)
    assert result.status == 0, result.err
    assert "Ignored: create_image does not have the input qualty" in result.out
