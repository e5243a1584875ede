"""The Python files of a checkout by their dotted names, and edits of source text by position."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("src", "tests", "bench", "tools", "docs")
OWN = ("tools/renames", "tests/unit/tools")  # the tables and their test name the old modules on purpose


class SourceTree:
    """A checkout: which modules there are, and where they are."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.packages = [path.name for path in (self.root / "src").iterdir() if path.is_dir()]
        self.modules = {self.module(path) for path in self.files()}
        for module in list(self.modules):
            parts = module.split(".")
            self.modules |= {".".join(parts[:end]) for end in range(1, len(parts))}

    def own(self, path: Path) -> bool:
        """Say whether a file belongs to this tool."""
        return path.relative_to(self.root).as_posix().startswith(OWN)

    def files(self) -> Iterator[Path]:
        """Yield the Python files that may be rewritten."""
        for folder in FOLDERS:
            for path in sorted((self.root / folder).rglob("*.py")):
                if "_build" not in path.parts and not self.own(path):
                    yield path

    def module(self, path: Path) -> str:
        """Return the dotted name of a file."""
        source = self.root / "src"
        parts = list(
            path.relative_to(source if path.is_relative_to(source) else self.root).with_suffix("").parts
        )
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def path(self, module: str) -> Path:
        """Return the path of a package's folder, or of a module without its suffix."""
        base = self.root / "src" if module.partition(".")[0] in self.packages else self.root
        return base / module.replace(".", "/")

    def is_file(self, module: str) -> bool:
        """Say whether a module is a file of its own and not a folder."""
        return self.path(module).with_suffix(".py").exists()


class SourceEdits:
    """Edits of one text by the positions of syntax nodes, applied from the end to the beginning."""

    def __init__(self, text: str) -> None:
        self.lines = [line.encode() for line in text.splitlines(keepends=True)]
        self.edits: set[tuple[int, int, int, int, bytes]] = set()

    def rename(self, line: int, column: int, old: str, new: str) -> None:
        """Replace a name at a position; lines count from 1, columns are bytes."""
        self.edits.add((line - 1, column, line - 1, column + len(old.encode()), new.encode()))

    def replace(self, node: ast.stmt | ast.expr, new: str) -> None:
        """Replace the text of a node."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        self.edits.add((node.lineno - 1, node.col_offset, end_line - 1, end_column, new.encode()))

    def apply(self) -> str:
        """Return the edited text."""
        for line, column, end_line, end_column, new in sorted(self.edits, reverse=True):
            tail = self.lines[end_line][end_column:]
            self.lines[line] = self.lines[line][:column] + new + tail
            for covered in range(line + 1, end_line + 1):
                self.lines[covered] = b""
        return b"".join(self.lines).decode()


def rows(table: Path) -> Iterator[tuple[str, str]]:
    """Yield the two sides of each `old -> new` line of a table."""
    for line in table.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text:
            old, _, new = text.partition("->")
            yield old.strip(), new.strip()
