"""Rename attributes, methods and parameters with pyright's language server."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tools.renames.tree import SourceTree, rows

MEMORY_MEGABYTES = 6000
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Message = dict[str, Any]


class LanguageServer:
    """Pyright's language server in one checkout, asked one question at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.number = 0
        self.versions: dict[str, int] = {}
        program = root / ".venv" / "bin" / "pyright-langserver"
        options = {
            "NODE_OPTIONS": f"--max-old-space-size={MEMORY_MEGABYTES}",
            "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
        }
        self.process = subprocess.Popen(
            [str(program), "--stdio"],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **options},
        )
        edits = {"configuration": True, "workspaceEdit": {"documentChanges": True}}
        folder = {"uri": root.as_uri(), "name": root.name}
        capabilities = {"workspace": edits, "textDocument": {"rename": {"prepareSupport": True}}}
        here = {"processId": os.getpid(), "rootUri": root.as_uri(), "workspaceFolders": [folder]}
        self.ask("initialize", {**here, "capabilities": capabilities})
        self.notify("initialized", {})
        self._wait_for_files()

    def close(self) -> None:
        """End the server."""
        self.process.terminate()
        self.process.wait()

    def _send(self, message: Message) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        if self.process.stdin is None:
            raise RuntimeError("the language server has no input")
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def _read(self) -> Message:
        if self.process.stdout is None:
            raise RuntimeError("the language server has no output")
        size = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        if not size:
            raise RuntimeError(f"the language server ended with status {self.process.wait()}")
        return json.loads(self.process.stdout.read(size))

    def _answer(self, message: Message) -> None:
        asks = message["method"] == "workspace/configuration"
        result = [{} for _ in message["params"]["items"]] if asks else None
        self._send({"id": message["id"], "result": result})

    def _wait_for_files(self) -> None:
        """Wait until the server has listed the source files: a rename before that misses uses."""
        while True:
            message = self._read()
            if "method" in message and "id" in message:
                self._answer(message)
            elif re.search(r"[Ff]ound \d+ source file", str(message.get("params", {}).get("message", ""))):
                return

    def ask(self, method: str, params: Message) -> Message:
        """Send a request and return its response; the server's own requests are answered meanwhile."""
        self.number += 1
        self._send({"id": self.number, "method": method, "params": params})
        while True:
            message = self._read()
            if "method" not in message and message.get("id") == self.number:
                return message
            if "method" in message and "id" in message:
                self._answer(message)

    def notify(self, method: str, params: Message) -> None:
        """Send a message that has no response."""
        self._send({"method": method, "params": params})

    def show(self, path: Path) -> None:
        """Send the present text of a file."""
        uri, text = path.as_uri(), path.read_text(encoding="utf-8")
        version = self.versions[uri] = self.versions.get(uri, 0) + 1
        if version == 1:
            document = {"uri": uri, "languageId": "python", "version": version, "text": text}
            self.notify("textDocument/didOpen", {"textDocument": document})
        else:
            document = {"uri": uri, "version": version}
            self.notify(
                "textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]}
            )

    def rename(self, path: Path, position: tuple[int, int], new: str) -> list[Path]:
        """Rename what is at a position, and return the files that changed."""
        self.show(path)
        where = {"line": position[0], "character": position[1]}
        params = {"textDocument": {"uri": path.as_uri()}, "position": where, "newName": new}
        changed = self._write(self.ask("textDocument/rename", params).get("result") or {})
        for each in changed:
            self.show(each)
        changes = [{"uri": each.as_uri(), "type": 2} for each in changed]
        self.notify("workspace/didChangeWatchedFiles", {"changes": changes})
        return changed

    def _write(self, result: Message) -> list[Path]:
        changes: dict[str, list[Message]] = dict(result.get("changes") or {})
        for each in result.get("documentChanges", []):
            if "edits" in each:
                changes.setdefault(each["textDocument"]["uri"], []).extend(each["edits"])
        paths = []
        for uri, edits in changes.items():
            path = Path(unquote(urlparse(uri).path))
            if path.is_relative_to(self.root) and ".venv" not in path.parts:
                path.write_text(edited(path.read_text(encoding="utf-8"), edits), encoding="utf-8")
                paths.append(path)
        return paths


def edited(text: str, edits: list[Message]) -> str:
    """Apply the edits of a response; each is within one line."""
    lines = text.splitlines(keepends=True)
    places = [(each["range"]["start"], each["range"]["end"]["character"], each["newText"]) for each in edits]
    for start, end, new in sorted(
        places, key=lambda each: (each[0]["line"], each[0]["character"]), reverse=True
    ):
        line = lines[start["line"]]
        lines[start["line"]] = line[: start["character"]] + new + line[end:]
    return "".join(lines)


def member(node: ast.AST, name: str) -> ast.AST | None:
    """Return the definition, field, parameter or attribute of a name in a module, class or function."""
    for each in getattr(node, "body", []):
        if isinstance(each, Definition) and each.name == name:
            return each
        if isinstance(each, ast.AnnAssign | ast.Assign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id == name:
                    return target
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = node.args
        names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return next((each for each in names if each.arg == name), None)
    return attribute(node, name) if isinstance(node, ast.ClassDef) else None


def attribute(node: ast.ClassDef, name: str) -> ast.Attribute | None:
    """Return the first `self.name = …` of a class."""
    stores = (
        each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    )
    return next((each for each in stores if each.attr == name and ast.unparse(each.value) == "self"), None)


def position(text: str, dotted: str) -> tuple[int, int] | None:
    """Return the line and column, counted from 0, where `Class.name` or `function.parameter` is defined."""
    node: ast.AST | None = ast.parse(text)
    for part in dotted.split("."):
        node = member(node, part) if node is not None else None
    if isinstance(node, Definition):
        row = text.splitlines()[node.lineno - 1]
        found = re.search(rf"(?:class|def)\s+({re.escape(node.name)})\b", row)
        return (node.lineno - 1, found.start(1)) if found else None
    if isinstance(node, ast.Attribute):
        return (node.end_lineno or node.lineno) - 1, (node.end_col_offset or 0) - len(node.attr)
    return (node.lineno - 1, node.col_offset) if isinstance(node, ast.Name | ast.arg) else None


def apply(root: Path, table: Path) -> list[str]:
    """Apply a table of attributes, and return what could not be renamed."""
    tree = SourceTree(root)
    report = []
    server = LanguageServer(tree.root)
    try:
        for left, new in rows(table):
            module, _, dotted = left.partition(":")
            path = tree.path(module)
            path = path.with_suffix(".py") if tree.is_file(module) else path / "__init__.py"
            where = position(path.read_text(encoding="utf-8"), dotted) if path.exists() else None
            if where is None:
                report.append(f"not found: {left}")
            elif not server.rename(path, where, new):
                report.append(f"no result: {left}")
    finally:
        server.close()
    return report
