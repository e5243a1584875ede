"""Small node classes and graphs for tests without images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.workflows import node_definitions
from sixfold.core.workflows.execution.execute import RunEnvironment
from sixfold.core.workflows.nodes import NodeSpec, Registry
from sixfold.core.workflows.ports import (
    CachedOutput,
    ChildRequest,
    ListValue,
    NodeArtifact,
    NodeChild,
    NodeFile,
    NodeResult,
)
from sixfold.errors import NotFound


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def spec(class_type: str, line: str, **facts: Any) -> NodeSpec:
    parsed = node_definitions.parse(class_type, line)
    return NodeSpec(class_type, parsed.inputs, parsed.outputs, output_node=parsed.output_node, **facts)


async def ask(context: Any, words: str) -> tuple[str]:
    child = await context.child(ChildRequest("writer", {"words": words}))
    return (str(child.data["text"]),)


CLASSES = Registry(
    [
        spec("Number", "value INT =0 0..100 -> INT", run=lambda _, value: (value,)),
        spec("Text", 'value STRING ="" -> STRING', run=lambda _, value: (value,)),
        spec("Add", "a INT; b? INT =1 -> INT", run=lambda _, a, b=1: (a + b,)),
        spec("Slow", "a INT -> INT", run=lambda _, a: (a * 10,), where="thread"),
        spec(
            "Mode",
            'mode ["quick","thorough","careful"]; size FLOAT =1.0 0.5..2.0 -> STRING',
            run=lambda *_, **__: ("",),
        ),
        spec("Either", "value INT,FLOAT -> FLOAT", run=lambda _, value: (float(value),)),
        spec("Load", "file COMBO image-file -> STRING", run=lambda _, file: (file.digest,)),
        spec("Loader", "name <checkpoints> -> MODEL", run=lambda _, name: (name,)),
        spec(
            "Ask",
            "words STRING -> STRING",
            run=ask,
            where="await",
            estimate=lambda fields: (ChildRequest("writer", fields),),
        ),
        spec("List", "upto INT -> INT[]", run=lambda _, upto: (list(range(upto)),)),
        spec("Fail", "a INT -> INT", run=lambda _, a: (1 // 0,)),
        spec("Show", "! value * ->", run=lambda _, value: NodeResult(ui={"text": (str(value),)})),
        spec(
            "Save",
            "! text STRING ->",
            run=lambda _, text: NodeResult(
                artifacts=(NodeArtifact("text/plain", text.encode(), kind="files"),)
            ),
        ),
        spec("Random", "-> INT", run=lambda _: (4,), fingerprint=lambda _: None),
        spec("Remote", "a INT -> INT"),
    ]
)


class Packer:
    """JSON values as bytes."""

    def pack(self, values: Sequence[Any]) -> bytes | None:
        return (
            None
            if any(isinstance(value, ListValue) for value in values)
            else msgspec.msgpack.encode(list(values))
        )

    def unpack(self, data: bytes) -> tuple[Any, ...]:
        return tuple(msgspec.msgpack.decode(data)) if data else ()

    def small(self, data: bytes) -> tuple[Any, ...] | None:
        return self.unpack(data)

    def weigh(self, value: Any) -> int:
        return len(value) if isinstance(value, str) else 8


class ExecutionFixture:
    """Dependencies of a run: a function for child runs, files by name, and a cache."""

    def __init__(self, folder: Path, writer: Callable[[str], str] = str.upper) -> None:
        self.folder = folder
        self.requests: list[str] = []
        self.files: list[tuple[str, bytes]] = []
        self.outputs: dict[str, CachedOutput] = {}
        self.writer = writer
        self.gate: asyncio.Event | None = None
        # Set once `expected` children were requested.
        self.arrived = asyncio.Event()
        self.expected = 1

    @property
    def location(self) -> RunEnvironment:
        return RunEnvironment(self, self, self, Packer(), self.folder, _Cache(self.outputs))

    async def run(
        self, node_key: str, model: str, inputs: Mapping[str, Any], progress: Callable[[float], None]
    ) -> NodeChild:
        self.requests.append(inputs["words"])
        if len(self.requests) >= self.expected:
            self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        progress(1.0)
        return NodeChild(data={"text": self.writer(inputs["words"])})

    async def find(self, name: str, kind: str) -> NodeFile:
        path = self.folder / name
        if not path.exists():
            raise NotFound(f"There is no {kind} {name}")
        return NodeFile(path.read_text(), "image/png", path)

    async def keep(self, node_id: str, artifact: NodeArtifact, *, preview: bool) -> Mapping[str, Any]:
        self.files.append((node_id, artifact.data))
        return {"filename": f"{node_id}.txt"}


class _Cache:
    def __init__(self, stored: dict[str, CachedOutput]) -> None:
        self._stored = stored

    async def find(self, keys: Sequence[str]) -> Mapping[str, CachedOutput]:
        return {key: self._stored[key] for key in keys if key in self._stored}

    async def keep(self, entries: Mapping[str, CachedOutput]) -> None:
        self._stored.update(entries)
