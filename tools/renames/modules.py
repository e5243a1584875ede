"""Move modules, and rewrite the imports, dotted names and paths that name them."""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.renames.scopes import ScopedUses, bindings
from tools.renames.tree import SourceEdits, SourceTree, rows

# Names that say too little without their package: an import binds `package_name` in their place.
GENERIC = frozenset(Path(__file__).with_name("generic-names.txt").read_text(encoding="utf-8").split())
TEXTS = re.compile(
    r".*(\.(toml|md|cfg|yml|yaml|html|json|txt|sql|service|sh|css|js|conf)|Makefile|run|Dockerfile)"
)
DOTTED = re.compile(r"(?<![\w./-])\w+(?:\.\w+)+")
IMPORT_WIDTH = 100
Groups = dict[str, list[tuple[str, str]]]


def longest_first(names: dict[str, str]) -> str:
    """Return a pattern that matches any of the names."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)"


class ModuleMoves:
    """The moves of one table in one checkout."""

    def __init__(self, tree: SourceTree, table: Path) -> None:
        self.tree = tree
        self.report: list[str] = []
        self.aliases: dict[str, str] = {}
        self.lines: dict[str, str] = {}
        for old, right in rows(table):
            new, _, alias = right.partition(" as ")
            self.lines[old] = new.strip()
            if alias:
                self.aliases[old] = alias.strip()
            if old not in tree.modules:
                self.report.append(f"not found: {old}")
        self.moves = self._moves()
        doubled = [new for new, number in Counter(self.moves.values()).items() if number > 1]
        if doubled:
            raise SystemExit(f"{table.name}: several modules move to {', '.join(doubled)}; name each once")
        self.paths: dict[str, str] = {}
        self.folders: dict[str, str] = {}
        self._collect_paths()
        self.leaves: dict[str, set[str]] = {}
        for old in self.moves:
            package, _, leaf = old.rpartition(".")
            self.leaves.setdefault(package, set()).add(leaf)
        self.path = re.compile(rf"(?<![\w.-])((?:\.\./)*(?:src/)?)({longest_first(self.paths)})")
        self.folder = re.compile(rf"(?<![\w./-])(src/)?({longest_first(self.folders)})(?![\w./-])")

    def _moves(self) -> dict[str, str]:
        found = {}
        for module in self.tree.modules:
            parts = module.split(".")
            heads = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
            head = next((each for each in heads if each in self.lines), None)
            if head is not None and self.lines[head] == "-":
                if module != head:
                    self.report.append(f"stays in a package that is dissolved: {module}")
            elif head is not None:
                new = self.lines[head] + module[len(head) :]
                if new != module:
                    found[module] = new
        return found

    def _collect_paths(self) -> None:
        for old, new in self.moves.items():
            forms = [(old.replace(".", "/"), new.replace(".", "/"))]
            top = old.partition(".")[0] + "/"
            if top[:-1] in self.tree.packages:
                forms.append((forms[0][0].removeprefix(top), forms[0][1].removeprefix(top)))
            for before, after in forms:
                if self.tree.is_file(old):
                    self.paths[before + ".py"] = after + ".py"
                elif "/" in before:
                    self.paths[before + "/"] = after + "/"
                    self.folders[before] = after

    def _rename_folder(self, found: re.Match[str]) -> str:
        if found[1] or found[2].startswith("tests/"):
            return (found[1] or "") + self.folders[found[2]]
        return found[0]

    def rename_text(self, text: str) -> str:
        """Rewrite the dotted names and paths of any text."""
        if "." in text:
            text = DOTTED.sub(self._rename_dotted, text)
        if "/" in text:
            text = self.folder.sub(self._rename_folder, text)
        if "/" in text or ".py" in text:
            text = self.path.sub(lambda found: found[1] + self.paths[found[2]], text)
        return text

    def _rename_dotted(self, found: re.Match[str]) -> str:
        """Rename the longest head of a dotted name that moves."""
        parts = found[0].split(".")
        for end in range(len(parts), 0, -1):
            head = ".".join(parts[:end])
            if head in self.moves:
                return self.moves[head] + found[0][len(head) :]
        return found[0]

    def rename_strings(self, text: str) -> str:
        """Rewrite the dotted names and paths in the strings and comments of Python source."""
        if self.rename_text(text) == text:
            return text
        lines = text.splitlines(keepends=True)
        tokens = [
            (token.start, token.end, new)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type in (tokenize.STRING, tokenize.COMMENT)
            and (new := self.rename_text(token.string)) != token.string
        ]
        for (line, column), (end_line, end_column), new in reversed(tokens):
            lines[line - 1] = lines[line - 1][:column] + new + lines[end_line - 1][end_column:]
            lines[line:end_line] = [""] * (end_line - line)
        return "".join(lines)

    def rename_imports(self, path: Path, text: str) -> str:
        """Rewrite the imports of a file, and the uses of modules that an import binds to another name."""
        if not any(
            package in text and any(leaf in text for leaf in leaves)
            for package, leaves in self.leaves.items()
        ):
            return text
        syntax = ast.parse(text)
        edits = SourceEdits(text)
        bound = bindings(syntax)
        imports = [
            node
            for node in ast.walk(syntax)
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
        ]
        for name in self._unbound(imports):
            bound[name] -= 1
        renames: dict[str, str] = {}
        for node in imports:
            groups, changed = self._import_groups(path, node, bound, renames)
            if changed:
                edits.replace(node, import_text(groups, " " * node.col_offset))
        for name in ScopedUses(syntax, renames, renames).found:
            edits.rename(name.lineno, name.col_offset, name.id, renames[name.id])
        return edits.apply()

    def _unbound(self, imports: list[ast.ImportFrom]) -> set[str]:
        """Return the names that imports bind now and will not bind after the moves."""
        return {
            each.name
            for node in imports
            for each in node.names
            if each.asname is None
            and (full := f"{node.module}.{each.name}") in self.tree.modules
            and self.moves.get(full, full).rpartition(".")[2] != each.name
        }

    def _import_groups(
        self, path: Path, node: ast.ImportFrom, bound: Counter[str], renames: dict[str, str]
    ) -> tuple[Groups, bool]:
        """Return what to import from each package in place of one import, and whether that has changed."""
        groups: Groups = {}
        module = node.module or ""
        changed = False
        for each in node.names:
            full, binding = f"{module}.{each.name}", each.asname or each.name
            if full in self.tree.modules:
                package, _, leaf = self.moves.get(full, full).rpartition(".")
                if each.asname is None and leaf != each.name:
                    name = self._binding(path, full, (package, leaf), bound, renames)
                    if name != binding:
                        renames[binding] = binding = name
                changed |= f"{package}.{leaf}" != full
            else:
                package, leaf = self.moves.get(module, module), each.name
                changed |= package != module
            groups.setdefault(package, []).append((leaf, binding))
        return groups, changed

    def _binding(
        self, path: Path, full: str, new: tuple[str, str], bound: Counter[str], renames: dict[str, str]
    ) -> str:
        """Return the name to which an import binds a module after the move."""
        package, leaf = new
        longer = f"{package.rpartition('.')[2]}_{leaf}"
        name = self.aliases.get(full) or (longer if leaf in GENERIC else leaf)
        old = full.rpartition(".")[2]
        if name != old and (bound[name] > 0 or name in renames.values()) and renames.get(old) != name:
            self.report.append(
                f"{path.relative_to(self.tree.root)}: {name} is in use; {old} becomes {longer}"
            )
            name = old if bound[longer] > 0 else longer
        return name

    def rewrite(self) -> None:
        """Rewrite every file of the checkout."""
        for path in self.tree.files():
            text = path.read_text(encoding="utf-8")
            new = self.rename_strings(self.rename_imports(path, text))
            if new != text:
                path.write_text(new, encoding="utf-8")
        for path in text_files(self.tree):
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            new = self.rename_text(text)
            if new != text:
                path.write_text(new, encoding="utf-8", errors="surrogateescape")

    def move_files(self) -> None:
        """Move whole packages with the files beside their modules, then single modules."""
        single = [module for module in self.moves if self.tree.is_file(module)]
        for old, new in self.lines.items():
            here, there = self.tree.path(old), self.tree.path(new)
            if old in single or new == "-" or not here.is_dir():
                continue
            if there.exists() and not any(
                path.is_file() and "__pycache__" not in path.parts for path in there.rglob("*")
            ):
                shutil.rmtree(there)
            if not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                git(self.tree.root, "mv", str(here), str(there))
        waiting = []
        for module in sorted(single, key=lambda name: -name.count(".")):
            there = self.tree.path(self.moves[module]).with_suffix(".py")
            here = next((path for path in self._candidates(module) if path.exists()), None)
            if here is None or here == there:
                continue
            self._make_package(there.parent)
            between = there.with_name("_moving_" + there.name)  # two modules may change places
            git(self.tree.root, "mv", str(here), str(between))
            waiting.append((between, there))
        for between, there in waiting:
            git(self.tree.root, "mv", str(between), str(there))

    def _candidates(self, module: str) -> list[Path]:
        """Return where a module may be while packages above it have moved."""
        parts = module.split(".")
        heads = [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
        names = [module, *(self.moves[head] + module[len(head) :] for head in heads if head in self.moves)]
        return [self.tree.path(name).with_suffix(".py") for name in names]

    def _make_package(self, folder: Path) -> None:
        """Make a folder, and mark it as a package where the folder above is one."""
        folder.mkdir(parents=True, exist_ok=True)
        roots = (self.tree.root, self.tree.root / "src")
        while folder not in roots and not (folder / "__init__.py").exists():
            if not (folder.parent / "__init__.py").exists():
                break
            (folder / "__init__.py").write_text("", encoding="utf-8")
            git(self.tree.root, "add", str(folder / "__init__.py"))
            folder = folder.parent


def import_text(groups: Groups, indent: str) -> str:
    """Return import statements, one for each package."""
    statements = []
    for package in sorted(groups):
        names = [leaf if leaf == name else f"{leaf} as {name}" for leaf, name in sorted(groups[package])]
        statement = f"from {package} import {', '.join(names)}"
        if len(indent + statement) > IMPORT_WIDTH:
            inside = "".join(f"{indent}    {name},\n" for name in names)
            statement = f"from {package} import (\n{inside}{indent})"
        statements.append(statement)
    return f"\n{indent}".join(statements)


def text_files(tree: SourceTree) -> Iterator[Path]:
    """Yield the files of the checkout that are no Python source and may name modules."""
    for name in git(tree.root, "ls-files").splitlines():
        path = tree.root / name
        if (
            TEXTS.fullmatch(name)
            and not name.startswith("CHANGELOG")
            and path.is_file()
            and not tree.own(path)
        ):
            yield path


def git(root: Path, *arguments: str) -> str:
    """Run git in the checkout and return what it printed."""
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def apply(root: Path, table: Path) -> list[str]:
    """Apply a table of moves, and return what it could not do."""
    moves = ModuleMoves(SourceTree(root), table)
    moves.rewrite()
    moves.move_files()
    return moves.report
