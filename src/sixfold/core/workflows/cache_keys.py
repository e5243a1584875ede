"""The key of each node's outcome: its class, version and inputs, a link being its parent's key (Merkle)."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

import msgspec

from sixfold.core.workflows import slices
from sixfold.core.workflows.ports import NodeFile
from sixfold.core.workflows.slices import Steps
from sixfold.core.workflows.validate import GraphNode

_MOST_BITS = 63


def keys(nodes: Mapping[str, GraphNode]) -> dict[str, str]:
    """The key of every node, parents first, in one pass.

    Equal keys mean equal outcomes, whatever the ids of the nodes and whichever graph they stand in. What a
    `fingerprint` of None says cannot be repeated has a key that is never met again.
    """
    return slices.complete(keying(nodes))


def keying(nodes: Mapping[str, GraphNode]) -> Steps[dict[str, str]]:
    """The same in steps."""
    found: dict[str, str] = {}
    for at, (node_id, node) in enumerate(nodes.items()):
        if at % slices.ITEMS == 0:
            yield
        spec = node.spec
        links = [(name, found[origin], slot) for name, (origin, slot) in node.links.items()]
        links.sort()
        mark: str | None = ""
        if spec.fingerprint is not None:
            mark = spec.fingerprint(node.values)
        if mark is None:
            found[node_id] = secrets.token_hex(16)
            continue
        values = [(name, _plain(node.values[name])) for name in sorted(node.values)]
        told = msgspec.json.encode((spec.class_type, spec.version, values, links, mark))
        found[node_id] = hashlib.blake2b(told, digest_size=16).hexdigest()
    return found


def _plain(value: object) -> object:
    """A value as JSON has it: a file by its content, a number that is too long as text."""
    if isinstance(value, NodeFile):
        return {"digest": value.digest}
    return str(value) if type(value) is int and value.bit_length() > _MOST_BITS else value


def files_named(node: GraphNode) -> dict[str, tuple[str, str]]:
    """The files that a node's values name, by input: name and kind."""
    named: dict[str, tuple[str, str]] = {}
    for name, kind in node.spec.uploads.items():
        value = node.values.get(name)
        if isinstance(value, str) and value:
            named[name] = (value, kind)
    return named
