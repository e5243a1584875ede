"""Every setting, route and option is documented, and the code in the docs runs."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.architecture import source

READING_LINES = 1_500
READING_FILES = 12
PROSE_CHARACTERS = 120
FENCE = re.compile(
    r"^(?P<tick>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=tick)[ ]*$", re.MULTILINE | re.DOTALL
)
VERBS = {
    "get",
    "post",
    "put",
    "patch",
    "delete",
    "head",
    "route",
    "api_route",
    "websocket",
    "websocket_route",
}


def module(name: str) -> Any:
    """Import a module of the product; skip the test if it does not exist."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is still to come")
    return importlib.import_module(name)


def page(name: str) -> str:
    """Return a page of the documentation, or an empty text if it does not exist."""
    path = source.DOCS / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def test_every_setting_is_documented() -> None:
    settings = module("sixfold.settings")
    text = page("reference/settings.md")
    all_names = [field.name for field in fields(settings.Settings) if field.name not in settings.NO_SETTINGS]
    names = [f"SIXFOLD_{name.upper()}" for name in all_names]
    missing = [name for name in names if not re.search(rf"\b{name}\b", text)]
    assert not missing, f"docs/reference/settings.md does not name {missing}"


def test_every_provider_is_documented() -> None:
    text = page("howto/providers.md")
    missing: list[str] = []
    for spec in module("sixfold.providers").PROVIDERS.values():
        rows = [f"| {spec.title} | `{spec.name}` | `{spec.variable}` | <{spec.keys_url}>"]
        rows += [f"`{name.upper()}`" for name in spec.parameters]
        missing += [row for row in rows if row not in text]
    assert not missing, f"docs/howto/providers.md lacks {missing}"


def test_every_model_of_a_provider_is_documented() -> None:
    text, document = page("howto/providers.md"), module("sixfold.app.catalog").models_document()
    hosted = {name for name, engine in document["engines"].items() if "setting" in engine}
    missing = [
        name
        for name, model in document["models"].items()
        if not hosted.isdisjoint(model["engines"]) and f"`{name}`" not in text
    ]
    missing += [name for name in hosted if f"`{name}`" not in text]
    assert not missing, f"docs/howto/providers.md does not name {missing}"


def test_every_part_of_a_score_is_documented() -> None:
    code = source.text("src/sixfold/core/memory/search/ranking.py")
    parts = {*re.findall(r'"(\w+)"\]? ?[:=] ScorePart', code), "phrase"}
    text = page("architecture/62-ranking.md")
    _, _, section = text.partition("## The formula")
    formula, table = section.split("```")[1], re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    rows = {name for row in table for name in re.findall(r"`(\w+)`", row)}
    for path, names in {
        "the formula of ranking.py": set(re.findall(r"\w+", code.split('"""')[1])),
        "the formula of 62-ranking.md": set(re.findall(r"\w+", formula)),
        "the table of 62-ranking.md": rows,
        "LABELS in weights.py": set(module("sixfold.core.memory.indexing.weights").LABELS),
    }.items():
        assert parts <= names, f"{path} lacks {sorted(parts - names)}"


def options(parser: argparse.ArgumentParser, words: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a parser with each of its options, and with nothing for the command itself."""
    yield words, ""
    # argparse has no public function that lists the actions, and no public name of this class.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from options(child, f"{words} {name}")
        elif action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
            yield from ((words, name) for name in action.option_strings if name.startswith("--"))


def test_every_command_and_option_is_documented() -> None:
    parser = module("sixfold.cli.main").build_parser()
    text = page("reference/cli.md")
    missing = [
        f"{words} {option}".strip()
        for words, option in options(parser, "sixfold")
        if not re.search(rf"(?<![\w-]){re.escape(option or words)}(?![\w-])", text)
    ]
    assert not missing, f"docs/reference/cli.md does not name {missing}"


def plain(path: str) -> str:
    """Return a route's path with its parameters' names left out: the docs may name them otherwise."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def routes(name: str) -> Iterator[str]:
    """Yield the paths that a module's decorators and `Route(...)` calls name, behind the file's prefix."""
    calls = [node for node in ast.walk(source.tree(name)) if isinstance(node, ast.Call)]
    prefixes = [
        keyword.value.value
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "prefix" and isinstance(keyword.value, ast.Constant)
    ]
    prefix = str(prefixes[0]) if len(prefixes) == 1 else ""
    for call in calls:
        called = ast.unparse(call.func).rpartition(".")[2]
        routing = called in {"RouteEntry", "SocketRoute"} or (
            "." in ast.unparse(call.func) and called in VERBS
        )
        first = call.args[0] if call.args else None
        path = first.value if isinstance(first, ast.Constant) else None
        if routing and isinstance(path, str) and path.startswith("/"):
            yield prefix + path


def test_every_route_is_documented() -> None:
    text = plain(source.documentation())
    results = [
        (name, path) for name in source.python("src/sixfold/api", "src/sixfold/mcp") for path in routes(name)
    ]
    if not results:
        raise AssertionError("no route was found: does the test still know the class of routes?")
    missing = sorted({f"{path} ({name})" for name, path in results if plain(path) not in text})
    assert not missing, "no page of docs/ names\n" + "\n".join(missing)


def test_reading_list_has_at_most_1500_lines() -> None:
    """`docs/architecture` names twelve files in reading order, one numbered line each; 1,500 lines in all."""
    pages = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted(source.DOCS.glob("architecture/*.md"))
    )
    _, heading, rest = pages.partition("Read Sixfold in an hour")
    if not heading:
        pytest.skip("docs/architecture does not yet have 'Read Sixfold in an hour'")
    section = re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    names = re.findall(r"^\s*\d+\.\s[^\n]*?`((?:src|tests)/[\w/.]+)`", section, flags=re.MULTILINE)
    assert len(names) == READING_FILES, names
    lines = {name: source.text(name).count("\n") for name in names}
    assert sum(lines.values()) <= READING_LINES, lines


def test_lines_of_prose_have_at_most_120_characters() -> None:
    """Tables, images and code blocks may be longer, because they cannot be wrapped."""
    long_lines: list[str] = []
    for name in sorted(
        each for each in source.files() if each.endswith(".md") and not each.startswith("src/")
    ):
        prose = FENCE.sub(lambda block: "\n" * block[0].count("\n"), source.text(name))
        for number, line in enumerate(prose.splitlines(), 1):
            if len(line) > PROSE_CHARACTERS and not re.match(r" *(?:\||!\[)", line):
                long_lines.append(f"{name}:{number}: {len(line)}")
    assert not long_lines, "wrap\n" + "\n".join(long_lines)


def doc_blocks() -> Iterator[tuple[str, str, str]]:
    """Yield each fenced block of the docs: where it is, its info string, its text."""
    pages = [Path("README.md"), Path("CONTRIBUTING.md")]
    pages += [
        path.relative_to(source.ROOT)
        for path in sorted(source.DOCS.rglob("*.md"))
        if "_build" not in path.parts
    ]
    for path in pages:
        if (source.ROOT / path).is_file():
            text = (source.ROOT / path).read_text(encoding="utf-8")
            for result in FENCE.finditer(text):
                line_number = text.count("\n", 0, result.start()) + 1
                yield f"{path}:{line_number}", result["info"].strip(), result["body"]


def test_python_code_of_the_docs_is_valid() -> None:
    for where, info, body in doc_blocks():
        if info.split(" ")[0] in {"python", "py"}:
            compile(body, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            assert body.strip(), where


RUN = [pytest.param(info, body, id=where) for where, info, body in doc_blocks() if info.endswith(" run")]


@pytest.mark.parametrize(("info", "body"), RUN)
def test_code_of_the_docs_marked_run_succeeds(info: str, body: str, tmp_path: Path) -> None:
    """A block opened with `python run` or `sh run` runs by itself in an empty folder."""
    commands = {"python": [sys.executable, "-W", "error", "-"], "sh": ["bash", "-euo", "pipefail", "-s"]}
    folder = str(Path(sys.executable).parent)
    environment = {"PATH": os.pathsep.join([folder, os.defpath]), "HOME": str(tmp_path)}
    result = subprocess.run(
        commands[info.split(" ")[0]],
        input=body,
        cwd=tmp_path,
        env={**environment, "SIXFOLD_DATA_DIR": str(tmp_path / "data"), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
