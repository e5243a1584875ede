"""Scopes of Python source: which names a file binds, and which uses mean the binding of the module."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Names = frozenset[str]


def bound_by(node: ast.AST) -> str | None:
    """Return the name that a node binds by itself."""
    match node:
        case ast.Name(id=name) if not isinstance(node.ctx, ast.Load):
            return name
        case ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.alias():
            return (node.asname or node.name).partition(".")[0]
    return None


def bindings(tree: ast.AST) -> Counter[str]:
    """Count how often each name is bound anywhere in a tree."""
    return Counter(name for node in ast.walk(tree) if (name := bound_by(node)))


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters of a function."""
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*several, *(each for each in (arguments.vararg, arguments.kwarg) if each)]


class ScopedUses:
    """The uses of names that mean bindings of the module; `imports` are those that an import renames."""

    def __init__(self, tree: ast.AST, names: Iterable[str], imports: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.imports = frozenset(imports)
        self.found: list[ast.Name] = []
        self._visit(tree, frozenset())

    def _local(self, function: Function | ast.Lambda) -> Names:
        """Return which of the names are local to a function, without those of functions inside it."""
        found = {each.arg for each in parameters(function.args)}
        outside: set[str] = set()
        waiting: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Definition):
                found.add(node.name)
                continue
            if isinstance(node, ast.Lambda):
                continue
            if isinstance(node, ast.Global | ast.Nonlocal):
                outside.update(node.names)
            renamed = isinstance(node, ast.alias) and (node.asname or node.name) in self.imports
            name = bound_by(node)
            if name and not renamed:
                found.add(name)
            waiting.extend(ast.iter_child_nodes(node))
        return self.names & (found - outside)

    def _visit(self, node: ast.AST, hidden: Names) -> None:
        if isinstance(node, Function):
            self._function(node, hidden)
        elif isinstance(node, ast.Lambda):
            self._all([*node.args.defaults, *node.args.kw_defaults], hidden)
            self._visit(node.body, hidden | self._local(node))
        elif isinstance(node, ast.ClassDef):
            self._class(node, hidden)
        else:
            if isinstance(node, Comprehension):
                targets = (name for each in node.generators for name in ast.walk(each.target))
                hidden |= self.names & {name.id for name in targets if isinstance(name, ast.Name)}
            if isinstance(node, ast.Name) and node.id in self.names - hidden:
                self.found.append(node)
            self._all(ast.iter_child_nodes(node), hidden)

    def _all(self, nodes: Iterable[ast.AST | None], hidden: Names) -> None:
        for node in nodes:
            if node is not None:
                self._visit(node, hidden)

    def _function(self, node: Function, hidden: Names) -> None:
        arguments = node.args
        self._all([*node.decorator_list, *arguments.defaults, *arguments.kw_defaults], hidden)
        self._all([each.annotation for each in parameters(arguments)], hidden)
        self._all([node.returns, *getattr(node, "type_params", [])], hidden)
        self._all(node.body, hidden | self._local(node))

    def _class(self, node: ast.ClassDef, hidden: Names) -> None:
        """Visit a class: what its body binds is hidden in the body's own lines, and not in methods."""
        self._all([*node.decorator_list, *node.bases, *(each.value for each in node.keywords)], hidden)
        bound = set[str]()
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign | ast.Assign):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                bound |= {target.id for target in targets if isinstance(target, ast.Name)}
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign):  # a field may have the name of its type's module
                self._all([statement.annotation, statement.value], hidden)
            else:
                inner = hidden if isinstance(statement, Function) else hidden | (self.names & bound)
                self._visit(statement, inner)
