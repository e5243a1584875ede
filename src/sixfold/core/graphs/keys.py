"""The key of each node's outcome: its class, version and inputs, a link being its parent's key (Merkle)."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold.core.graphs.ports import File
from sixfold.core.graphs.validate import Node

_encoder = msgspec.json.Encoder(enc_hook=lambda value: _plain(value))


def keys(nodes: Mapping[str, Node]) -> dict[str, str]:
    """The key of every node, parents first, in one pass.

    Equal keys mean equal outcomes, whatever the ids of the nodes and whichever graph they stand in. What a
    `fingerprint` of None says cannot be repeated has a key that is never met again.
    """
    found: dict[str, str] = {}
    for node_id, node in nodes.items():
        spec = node.spec
        links = [(name, found[origin], slot) for name, (origin, slot) in node.links.items()]
        links.sort()
        mark: str | None = ""
        if spec.fingerprint is not None:
            mark = spec.fingerprint(node.values)
        if mark is None:
            found[node_id] = secrets.token_hex(16)
            continue
        told = _encoder.encode((spec.class_type, spec.version, sorted(node.values.items()), links, mark))
        found[node_id] = hashlib.blake2b(told, digest_size=16).hexdigest()
    return found


def _plain(value: object) -> Any:
    if isinstance(value, File):
        return {"digest": value.digest}
    raise NotImplementedError(f"{type(value).__name__} is nothing that JSON has")


def files_named(node: Node) -> dict[str, tuple[str, str]]:
    """The files that a node's values name, by input: name and kind."""
    named: dict[str, tuple[str, str]] = {}
    for name, value in node.values.items():
        each = node.spec.by_name.get(name)
        if each is not None and each.upload and isinstance(value, str) and value:
            named[name] = (value, each.upload)
    return named
