"""Python functions as models: type hints, results and invalid files."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path

import pytest
from PIL import Image

from sixfold.clients import bubblewrap
from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.python_models import describe, watcher
from sixfold.engines.python_models.engine import FunctionEngine
from sixfold.engines.python_models.files import InvalidModelFile
from sixfold.engines.python_models.visibility import VisibilityDecision, VisibilityRules
from sixfold.worker.runner import RunContext

PAINTER = '''
from __future__ import annotations
from pathlib import Path
from typing import Annotated, Literal
from PIL import Image
import sixfold

@sixfold.model(title="Painter", hardware="gpu-16gb-a")
def paint(
    color: Annotated[Literal["red", "blue"], "What color"],
    width: Annotated[int, sixfold.Range(8, 64), "Width in pixels"] = 16,
    under: Image.Image | None = None,
    sound: sixfold.Audio | None = None,
    note: Annotated[str, sixfold.Length(9)] = "",
    report: sixfold.Progress = print,
) -> Image.Image:
    """Paint one color.

    More that nobody is told.
    """
    report(0.5)
    return under.transpose(Image.Transpose.ROTATE_180) if under else Image.new("RGB", (width, 8), color)
'''


class FakeContext:
    """A context that records a run."""

    def __init__(self) -> None:
        self.fractions: list[float] = []
        self.lines: list[str] = []
        self.previews: list[bytes] = []

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)

    def preview(self, content: bytes) -> None:
        self.previews.append(content)

    def log(self, line: str) -> None:
        self.lines.append(line)


def write(folder: Path, text: str) -> Path:
    path = folder / "my_painter.py"
    path.write_text(text, "utf-8")
    return path


def test_hints_become_descriptors(tmp_path: Path) -> None:
    result = watcher.describe(write(tmp_path, PAINTER), {})
    assert result.fault == ""
    facts = result.facts
    messages = (facts["name"], facts["title"], facts["hardware"], facts["output_kind"])
    assert messages == ("my-painter", "Painter", "gpu-16gb-a", "image")
    assert facts["description"] == "Paint one color."
    assert facts["inputs"] == {
        "color": {
            "type": "string",
            "choices": ["red", "blue"],
            "description": "What color",
            "required": True,
        },
        "width": {"type": "integer", "min": 8, "max": 64, "description": "Width in pixels", "default": 16},
        "under": {"type": "image"},
        "sound": {"type": "audio"},
        "note": {"type": "string", "max_chars": 9, "default": ""},
    }


def test_function_is_called_and_reports_progress(tmp_path: Path) -> None:
    engine = FunctionEngine(path=str(write(tmp_path, PAINTER)), version="7")
    sink = FakeContext()
    context = RunContext(sink, threading.Event(), tmp_path / "scratch")
    result = engine.run(Task("t", "painter", {"color": "blue", "width": 20, "note": ""}), context)
    (artifact,) = result.artifacts
    image = Image.open(io.BytesIO(artifact.data))
    assert (image.size, image.getpixel((3, 3))) == ((20, 8), (0, 0, 255))
    assert sink.fractions == [0.5]
    source = tmp_path / "under"
    turned = Image.new("RGB", (4, 4), "white")
    turned.putpixel((0, 0), (9, 9, 9))
    turned.save(source, "PNG")
    result = engine.run(Task("t", "painter", {"color": "red", "width": 20}, {"under": source}), context)
    assert Image.open(io.BytesIO(result.artifacts[0].data)).getpixel((3, 3)) == (9, 9, 9)


FAULTS = [
    ("def broken(:\n  pass\n", "line 1: invalid syntax"),
    ("x = 1\n", "no function decorated with @sixfold.model"),
    ("import sixfold\n@sixfold.model\ndef f(a): return a\n", "a must have a type hint"),
    ("import sixfold\n@sixfold.model\ndef f(a: complex) -> str: return ''\n", "is not supported"),
    ("import sixfold\n@sixfold.model\ndef f(*a: str) -> str: return ''\n", "a must be a keyword argument"),
    (
        "import sixfold\n@sixfold.model(name='A b')\ndef f(a: str) -> str: return ''\n",
        "is not a valid model name",
    ),
    ("raise RuntimeError('no card')\n", "RuntimeError: no card"),
    ("import sys; sys.exit(3)\n", "SystemExit: 3"),
]


@pytest.mark.parametrize(("text", "fault"), FAULTS)
def test_invalid_model_file_is_refused_with_a_reason(tmp_path: Path, text: str, fault: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InvalidModelFile) as excinfo:
        describe.describe(path)
    assert fault in str(excinfo.value)


def test_error_of_the_whole_file_names_no_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelFile) as excinfo:
        describe.describe(write(tmp_path, "x = 1\0\n"))
    assert str(excinfo.value) == "source code string cannot contain null bytes"


def test_printed_text_and_early_exit_are_refused(tmp_path: Path) -> None:
    ending = write(tmp_path, "import os\nos._exit(1)\n")
    assert watcher.describe(ending, {}).fault == "it exited while it was being read"
    printing = "import sixfold\nprint('{}')\n@sixfold.model\ndef f(a: str) -> str:\n    return a\n"
    assert watcher.describe(write(tmp_path, printing), {}).fault == ""


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("b'x' * 2**20", "more than 4,194,304 bytes of JSON"),
        ("b'[' * 10_000", "it exited while it was being read"),
        ("b'5'", "it exited while it was being read"),
        ("b'{\"name\": 5}'", "it exited while it was being read"),
        ("b'[' + b'{},' * 60_000 + b'0]'", "at most 50,000 arrays and objects"),
    ],
    ids=["endless", "nested", "number", "name", "objects"],
)
def test_a_false_description_is_refused(tmp_path: Path, written: str, fault: str) -> None:
    repeat = "while True" if "2**20" in written else "if True"
    text = f"import os\n{repeat}:\n    os.write(2, b'x' * 2**20)\n    os.write(1, {written})\nos._exit(0)\n"
    assert fault in watcher.describe(write(tmp_path, text), {}).fault


def test_a_description_cannot_contain_patterns(tmp_path: Path) -> None:
    row = {"name": "a", "inputs": {"text": {"type": "string", "pattern": "(a+)+b"}}}
    text = f"import os\nos.write(1, {json.dumps(row).encode()!r})\nos._exit(0)\n"
    assert watcher.describe(write(tmp_path, text), {}).facts["inputs"] == {"text": {"type": "string"}}


RESULTS = [
    ("str", "'hi'", (), {"value": "hi"}),
    ("dict", "{'a': 1}", (), {"a": 1}),
    ("list", "[1, 2]", (), {"value": [1, 2]}),
    ("bytes", r"b'%PDF-1'", ("application/pdf",), {}),
]


@pytest.mark.parametrize(("hint", "value", "kinds", "data"), RESULTS)
def test_return_value_of_a_function_becomes_the_result(
    tmp_path: Path, hint: str, value: str, kinds: tuple[str, ...], data: dict[str, object]
) -> None:
    text = f"import sixfold\n@sixfold.model\ndef f() -> {hint}:\n    return {value}\n"
    engine = FunctionEngine(path=str(write(tmp_path, text)), version="1")
    result = engine.run(Task("t", "f", {}), RunContext(FakeContext(), threading.Event(), tmp_path / "s"))
    assert tuple(each.content_type for each in result.artifacts) == kinds
    assert dict(result.data) == data


def test_exception_of_a_function_is_in_the_error(tmp_path: Path) -> None:
    text = "import sixfold\n@sixfold.model\ndef f() -> str:\n    raise ValueError('out of paint')\n"
    engine = FunctionEngine(path=str(write(tmp_path, text)), version="1")
    sink = FakeContext()
    with pytest.raises(EngineError, match="ValueError: out of paint"):
        engine.run(Task("t", "f", {}), RunContext(sink, threading.Event(), tmp_path / "s"))
    assert sink.lines == ["line 4: ValueError"]


def test_owner_of_a_model_file_decides_whether_it_is_sandboxed(tmp_path: Path) -> None:
    path = write(tmp_path, PAINTER)
    shut = not bubblewrap.fault()
    assert VisibilityRules().judge(path, trusted=True) == VisibilityDecision()
    assert VisibilityRules().judge(path, trusted=False).sandboxed == shut
    assert bool(VisibilityRules().judge(path, trusted=False).note) != shut, (
        "where it cannot be shut in, that is said"
    )
    assert VisibilityRules(sandbox="off").judge(path, trusted=False) == VisibilityDecision()
    always = VisibilityRules(sandbox="always").judge(path, trusted=True)
    assert (always.sandboxed, always.fault.startswith("SIXFOLD_SANDBOX=always")) == (shut, not shut)
    assert "model add" in VisibilityRules(open_to_all=False).judge(path, trusted=False).fault


def test_model_file_is_described_in_its_sandbox(tmp_path: Path) -> None:
    if fault := bubblewrap.fault():
        pytest.skip(fault)
    text = f"{PAINTER}\nprint(Path('/etc/passwd').read_text())\n"
    result = watcher.describe(write(tmp_path, text), watcher.environment(), sandboxed=True)
    assert "FileNotFoundError" in result.fault
    result = watcher.describe(write(tmp_path, PAINTER), watcher.environment(), sandboxed=True)
    assert (result.facts["name"], result.sandboxed) == ("my-painter", True)
