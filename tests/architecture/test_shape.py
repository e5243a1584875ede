"""Laws on the shape of the code: sizes, names, and what a function may not do."""

from __future__ import annotations

import logging.config
import re
from collections.abc import Iterator
from pathlib import PurePath

import pytest

from tests.architecture import source

# The patterns in this file are not breaches.
THIS_FILE = "tests/architecture/test_shape.py"
FUNCTION_LINES = 70
FILE_LINES = 500
VAGUE_MODULE = re.compile(
    r"(utils?|helpers?|managers?|common|misc|stuff)(_.*)?|.*(_utils?|_helpers?|_manager|part_?\d)"
)
VAGUE_CLASS = re.compile(r".*(Manager|Helper|Utils?)")
SILENCED = re.compile(
    r"#\s*(?:(?P<noqa>noqa)(?::\s*(?P<codes>[A-Z]+\d+(?:,\s*[A-Z]+\d+)*))?"
    r"|(?P<types>type:\s*ignore)|(?P<pyright>pyright:\s*ignore)(?P<rules>\[[\w, ]+\])?)(?P<reason>.*)"
)


def test_function_length_is_limited() -> None:
    source.check_law(
        "long-function",
        {
            f"{name}:{function.name}": f"{function.lines} lines, at most {FUNCTION_LINES}"
            for name in source.python()
            for function in source.functions(name)
            if function.lines > FUNCTION_LINES
        },
    )


def test_file_length_is_limited() -> None:
    lengths = {name: source.text(name).count("\n") for name in source.python()}
    source.check_law(
        "long-file",
        {
            name: f"{lines} lines, at most {FILE_LINES}"
            for name, lines in lengths.items()
            if lines > FILE_LINES
        },
    )


def test_module_names_are_specific() -> None:
    for name in source.python("src", "tools", "bench"):
        for part in PurePath(name).with_suffix("").parts:
            assert not VAGUE_MODULE.fullmatch(part), f"{name}: `{part}` names no noun"
        for each in source.outline(name).classes:
            assert not VAGUE_CLASS.fullmatch(each.name), f"{name}: `{each.name}` names no noun"


def test_dataclass_records_are_structs() -> None:
    source.check_law(
        "dataclass",
        {
            f"{name}:{each.name}": "a dataclass; use msgspec.Struct, which is defined 40 times faster"
            for name in source.python("src")
            for each in source.outline(name).classes
            if any("dataclass" in decorator for decorator in each.decorators)
        },
    )


def test_import_contracts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cli = pytest.importorskip("importlinter.cli", reason="`make check` installs import-linter")
    # The configuration of its logs disables all loggers of this process, which later tests read.
    monkeypatch.setattr(logging.config, "dictConfig", lambda _configuration: None)
    assert cli.lint_imports(no_cache=True, no_logo=True) == 0


def test_only_outermost_loops_catch_all_exceptions() -> None:
    source.check_law(
        "broad-except",
        {
            f"{name}:{function.name}": f"line {line_number} catches everything; name what can go wrong"
            for name in source.python("src")
            for function in source.functions(name)
            for line_number in function.catch_all
        },
    )


def test_environment_is_read_in_settings_only() -> None:
    reading = re.compile(r"\bos\.(environ(?!\[[^\]]*\] = )|getenv)\b|\bfrom os import .*\b(environ|getenv)\b")
    elsewhere = [n for n in source.python("src", "tests") if n not in {"src/sixfold/settings.py", THIS_FILE}]
    source.check_law(
        "environment",
        {
            name: "reads the environment; pass a Settings field instead"
            for name in elsewhere
            if reading.search(source.text(name))
        },
    )


def says_why(line: str) -> bool:
    """Return whether a line disables no rule, or names the rule and a reason."""
    result = SILENCED.search(line)
    named = result is None or result["codes"] or result["rules"]
    return bool(named) and (result is None or len(result["reason"].strip(" #–-:")) >= 5)


def test_silenced_rule_has_a_name_and_a_reason() -> None:
    broken = [
        f"{name}:{number}: name the rule and say why: `# noqa: S104  # it listens`"
        for name in source.python()
        for number, line in enumerate(source.text(name).splitlines(), 1)
        if name != THIS_FILE and not says_why(line)
    ]
    assert not broken, "\n" + "\n".join(broken)


def test_no_test_sleeps() -> None:
    source.check_law(
        "sleep",
        {
            f"{name}:{function.name}": "sleeps; wait for what should happen, with a limit"
            for name in source.python("tests")
            for function in source.functions(name)
            if "time.sleep" in function.calls
        },
    )


CHECK = re.compile(r"(assert|check|expect|validate|call_and_validate)(_|$)")


def asserts(function: source.FunctionOutline, checking: frozenset[str]) -> bool:
    """Return whether a function asserts something, itself or through one of the `checking` functions."""
    called = {name.rpartition(".")[2] for name in function.calls}
    return function.asserts or not called.isdisjoint(checking) or any(map(CHECK.match, called))


def each_test(name: str) -> Iterator[source.FunctionOutline]:
    """Yield the functions of a file that pytest runs."""
    return (function for function in source.functions(name) if function.name.startswith("test_"))


def test_every_test_asserts_something() -> None:
    checking = frozenset({"raises", "warns", "deprecated_call", "fail", "check_law"})
    # A helper may call another helper.
    for _ in range(3):
        checking |= {
            function.name
            for name in source.python("tests")
            for function in source.functions(name)
            if not function.name.startswith("test_") and asserts(function, checking)
        }
    source.check_law(
        "no-assertion",
        {
            f"{name}:{function.name}": "has no assertion"
            for name in source.python("tests")
            for function in each_test(name)
            if not asserts(function, checking)
        },
    )
