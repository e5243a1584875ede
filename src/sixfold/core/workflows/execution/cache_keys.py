"""Cache keys of nodes: a hash of class, version and inputs, in which a link has its origin's key."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

import msgspec

from sixfold.core.workflows import slices
from sixfold.core.workflows.ports import NodeFile
from sixfold.core.workflows.slices import Steps
from sixfold.core.workflows.validate import GraphNode

_MAX_BITS = 63


def key_steps(nodes: Mapping[str, GraphNode]) -> Steps[dict[str, str]]:
    """Compute the keys of all nodes in one pass; return them by node.

    Equal keys mean equal outputs, independent of node ids and graph. A node whose `fingerprint` returns None
    gets a random key, so its output is never reused.
    """
    result: dict[str, str] = {}
    for at, (node_id, node) in enumerate(nodes.items()):
        if at % slices.ITEMS == 0:
            yield
        spec = node.spec
        links = [(name, result[origin], slot) for name, (origin, slot) in node.links.items()]
        links.sort()
        mark: str | None = ""
        if spec.fingerprint is not None:
            mark = spec.fingerprint(node.values)
        if mark is None:
            result[node_id] = secrets.token_hex(16)
            continue
        values = [(name, _plain(node.values[name])) for name in sorted(node.values)]
        encoded = msgspec.json.encode((spec.class_type, spec.version, values, links, mark))
        result[node_id] = hashlib.blake2b(encoded, digest_size=16).hexdigest()
    return result


def _plain(value: object) -> object:
    """Return a value for JSON: a file as its digest, and an integer of more than 63 bits as a string."""
    if isinstance(value, NodeFile):
        return {"digest": value.digest}
    return str(value) if type(value) is int and value.bit_length() > _MAX_BITS else value


def files_named(node: GraphNode) -> dict[str, tuple[str, str]]:
    """Return, by input, the name and kind of each file that the node's values name."""
    files: dict[str, tuple[str, str]] = {}
    for name, kind in node.spec.uploads.items():
        value = node.values.get(name)
        if isinstance(value, str) and value:
            files[name] = (value, kind)
    return files
