"""Rename classes, functions and constants at the top of modules, and every use of them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tools.renames.modules import text_files
from tools.renames.scopes import ScopedUses, bindings
from tools.renames.tree import SourceEdits, SourceTree, rows

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
COLLECTIONS = frozenset({"list", "dict", "tuple", "type", "set", "deque"})


def definitions(statements: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt | ast.Name]]:
    """Yield what statements define at the top of a module, also inside `if`, `try` and `with`."""
    for node in statements:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node
            case ast.Assign():
                for target in node.targets:
                    yield from ((name.id, name) for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name() as target) | ast.AugAssign(target=ast.Name() as target):
                yield target.id, target
            case ast.If() | ast.Try() | ast.With():
                yield from definitions(inner_statements(node))
            case _:
                pass


def inner_statements(node: ast.If | ast.Try | ast.With) -> list[ast.stmt]:
    """Return the statements of all branches."""
    if isinstance(node, ast.With):
        return node.body
    if isinstance(node, ast.If):
        return [*node.body, *node.orelse]
    handled = [statement for handler in node.handlers for statement in handler.body]
    return [*node.body, *node.orelse, *node.finalbody, *handled]


class SymbolRenames:
    """The renames of one table in one checkout."""

    def __init__(self, tree: SourceTree, table: Path) -> None:
        self.tree = tree
        self.report: list[str] = []
        self.table: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for left, new in rows(table):
            module, _, old = left.partition(":")
            self.table[module][old] = new
        self.wanting = {(module, old) for module, names in self.table.items() for old in names}
        ends = {
            f"{module}{mark}{old}": f"{module}{mark}{new}"
            for module, names in self.table.items()
            for old, new in names.items()
            for mark in ":."
        }
        self.references = ends
        self.reference = re.compile(r"(?<![\w.])([a-z_][\w.]*[:.]\w+)(?=[\"'`])")
        self.exports = self._exports()

    def _exports(self) -> dict[str, dict[str, str]]:
        """Return the renames by module: of its own names, and of those that others use through it."""
        found = {module: dict(names) for module, names in self.table.items()}
        for path in self.tree.files():
            text = path.read_text(encoding="utf-8")
            module = self.tree.module(path)
            if not self._concerns(module, text, self.table):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and node.module in self.table:
                    for each in node.names:
                        new = self.table[node.module].get(each.name)
                        if new and each.asname is None:
                            found.setdefault(module, {}).setdefault(each.name, new)
        return found

    @staticmethod
    def _concerns(module: str, text: str, table: dict[str, dict[str, str]]) -> bool:
        """Say whether a file defines or may use a name of the table."""
        return module in table or any(
            other.rpartition(".")[0] in text
            and other.rpartition(".")[2] in text
            and any(map(text.__contains__, names))
            for other, names in table.items()
        )

    def apply(self) -> list[str]:
        """Rewrite every file, and return what could not be renamed."""
        for path in self.tree.files():
            text = path.read_text(encoding="utf-8")
            if not self._concerns(self.tree.module(path), text, self.exports):
                continue
            new = FileRenames(self, self.tree.module(path), text).rewrite()
            if new != text:
                path.write_text(new, encoding="utf-8")
        for path in text_files(self.tree):
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            new = self.rename_references(text)
            if new != text:
                path.write_text(new, encoding="utf-8", errors="surrogateescape")
        return [*(f"not found: {module}:{old}" for module, old in sorted(self.wanting)), *self.report]

    def rename_references(self, text: str) -> str:
        """Rewrite quoted `module:name` and `module.name`."""
        return self.reference.sub(lambda found: self.references.get(found[1], found[1]), text)


class FileRenames:
    """The renames in one file."""

    def __init__(self, symbols: SymbolRenames, module: str, text: str) -> None:
        self.symbols, self.table = symbols, symbols.table
        self.module, self.text = module, text
        self.lines = text.splitlines()
        self.syntax = ast.parse(text)
        self.edits = SourceEdits(text)
        self.bound = bindings(self.syntax)
        self.renames: dict[str, str] = {}
        self.imported: set[str] = set()
        self.modules: dict[str, str] = {}

    def rewrite(self) -> str:
        """Return the new text of the file."""
        self._definitions()
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for each in node.names:
                    self._import(node.module, each)
        for name in ScopedUses(self.syntax, self.renames, self.imported).found:
            self.edits.rename(name.lineno, name.col_offset, name.id, self.renames[name.id])
        if self.renames:
            self._strings(self.syntax, inside=False)
        if self.modules:
            self._attributes()
        return self._prose(self.symbols.rename_references(self.edits.apply()))

    def _definitions(self) -> None:
        names = self.table.get(self.module, {})
        there: defaultdict[str, list[ast.stmt | ast.Name]] = defaultdict(list)
        for name, node in definitions(self.syntax.body):
            there[name].append(node)
        for old, new in names.items():
            if old not in there:
                continue
            self.symbols.wanting.discard((self.module, old))
            if self.bound[new]:
                self.symbols.report.append(
                    f"{self.module}: {new} is in use already, and {old} becomes it too"
                )
            self.renames[old] = new
            for node in there[old]:
                if isinstance(node, Definition):
                    row = self.lines[node.lineno - 1].encode()
                    found = re.search(rf"(?:class|def)\s+({re.escape(old)})\b".encode(), row)
                    if found:
                        self.edits.rename(node.lineno, found.start(1), old, new)

    def _import(self, module: str, each: ast.alias) -> None:
        full = f"{module}.{each.name}"
        if full in self.symbols.exports and full in self.symbols.tree.modules:
            self.modules[each.asname or each.name] = full
        new = self.symbols.exports.get(module, {}).get(each.name)
        if new is None or full in self.symbols.tree.modules:
            return
        if each.asname is None and self.bound[new]:
            self.symbols.report.append(
                f"{self.module}: {new} is in use; its import stays bound to {each.name}"
            )
            self.edits.rename(each.lineno, each.col_offset, each.name, f"{new} as {each.name}")
            return
        self.edits.rename(each.lineno, each.col_offset, each.name, new)
        if each.asname is None:
            self.renames[each.name] = new
            self.imported.add(each.name)

    def _strings(self, node: ast.AST, *, inside: bool) -> None:
        """Rename types in quotes: in annotations, subscripts, `cast` and `__all__`."""
        if isinstance(node, ast.Constant):
            if inside and isinstance(node.value, str):
                self._quoted(node, node.value)
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "cast" and node.args:
            self._strings(node.args[0], inside=True)
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets):
            self._strings(node.value, inside=True)
        for name, value in ast.iter_fields(node):
            deeper = inside or name in {"annotation", "returns"} or (name == "slice" and of_types(node))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self._strings(child, inside=deeper)

    def _quoted(self, node: ast.Constant, value: str) -> None:
        new = re.sub(r"\b[A-Za-z_]\w*\b", lambda found: self.renames.get(found[0], found[0]), value)
        if new != value and node.lineno == node.end_lineno:
            row = self.lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
            self.edits.replace(node, row.replace(value, new))

    def _attributes(self) -> None:
        """Rename `module.name`, and the name in `setattr(module, "name")` and its like."""
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                new = self.symbols.exports.get(self.modules.get(node.value.id, ""), {}).get(node.attr)
                if new:
                    end = (node.end_col_offset or 0) - len(node.attr.encode())
                    self.edits.rename(node.end_lineno or node.lineno, end, node.attr, new)
            elif isinstance(node, ast.Call):
                match node.args:
                    case [ast.Name(id=name), ast.Constant(value=str(value)) as quoted, *_] if (
                        name in self.modules
                    ):
                        new = self.symbols.exports[self.modules[name]].get(value)
                        if new:
                            self.edits.replace(quoted, f'"{new}"')
                    case _:
                        pass

    def _prose(self, text: str) -> str:
        """Rename what docstrings and comments put between backquotes."""
        known = dict(self.renames)
        for module in self.modules.values():
            known |= self.symbols.exports[module]
        for old, new in known.items():
            text = re.sub(rf"`{re.escape(old)}(?=[`.(])", f"`{new}", text)
        return text


def of_types(node: ast.AST) -> bool:
    """Say whether a subscript is of a type, as in `list["Page"]`."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and (node.value.id[:1].isupper() or node.value.id in COLLECTIONS)
    )


def apply(root: Path, table: Path) -> list[str]:
    """Apply a table of symbols, and return what it could not do."""
    return SymbolRenames(SourceTree(root), table).apply()
