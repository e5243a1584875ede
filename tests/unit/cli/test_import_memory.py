"""Files that would fill the memory are refused by each import, in a separate process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sixfold.cli.imports import file_limits

# With 600 MiB instead of 4 GiB, in a process that has more already. 512 MiB are reserved for the file.
PROGRAM = """
import sys
from sixfold.cli import main
from sixfold.cli.imports import file_limits
file_limits.MAX_BYTES = 600 * 2**20
memory = bytearray(700 * 2**20)
sys.exit(main.main(sys.argv[1:]))
"""


def run_import(tmp_path: Path, command: str, content: bytes) -> subprocess.CompletedProcess[str]:
    """Import a file of this content in a separate process."""
    file = tmp_path / "file"
    file.write_bytes(content)
    return subprocess.run(  # this interpreter
        [
            *(sys.executable, "-c", PROGRAM, "import", command, str(file)),
            *("--account", "ann@example.com", "--data-dir", str(tmp_path / "data")),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_memory_from_before_the_import_is_not_counted(tmp_path: Path) -> None:
    result = run_import(tmp_path, "openwebui", b"[]")
    assert (result.returncode, result.stderr) == (0, ""), result


@pytest.mark.parametrize(
    ("command", "content"),
    [
        ("chatgpt", b"[" + b"0," * (8 * 2**20) + b"0]"),
        ("openwebui", b"[" + b"0," * (8 * 2**20) + b"0]"),
    ],
    ids=["chatgpt", "openwebui"],
)
def test_a_file_that_would_fill_the_memory_is_refused(tmp_path: Path, command: str, content: bytes) -> None:
    result = run_import(tmp_path, command, content)
    assert (result.returncode, "takes more than 600 MiB of memory to read" in result.stderr) == (1, True), (
        result
    )


def levels(first: str, template: str) -> str:
    """Return a document whose values each refer nine times to the previous one."""
    lines = [
        template.format(name=name, items=", ".join([f"*{before}"] * 9))
        for before, name in zip("abcdefghi", "bcdefghij", strict=True)
    ]
    return "\n".join([f"a: &a {first}", *lines])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (levels("{x: 1}", "{name}: &{name}\n  <<: [{items}]"), "merge keys add too many fields"),
        (levels("[x]", "{name}: &{name} [{items}]"), "more than 200,000 values"),
        ("a: &a [*a]", "more than 200,000 values"),
    ],
    ids=["merge keys", "aliases", "circle"],
)
def test_yaml_that_multiplies_its_values_is_refused(text: str, reason: str) -> None:
    with pytest.raises(yaml.YAMLError, match=reason):
        file_limits.parse_yaml(text)


def test_yaml_aliases_and_merge_keys_are_resolved() -> None:
    text = "a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]"
    assert file_limits.parse_yaml(text) == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}]}
