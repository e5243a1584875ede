"""Named workflows: graphs that are run by name, and their description in the API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sixfold.core.catalog.models import Model
from sixfold.core.humanize import count
from sixfold.core.workflows.documents import mapping, plain_name
from sixfold.core.workflows.input_inference import ApiInput, apply
from sixfold.core.workflows.nodes import UPLOADS, Graph, Registry
from sixfold.core.workflows.storage import SENT_FILE
from sixfold.core.workflows.validate import validate

# Prefix of the names of models made from workflows.
PREFIX: Final = "space:"
ENGINE: Final = "graph"
# The model of graphs that are sent as a whole.
PROMPT: Final = "comfyui-prompt"
PATH: Final = "/api/graph/spaces"
# Prefix of the names of Sixfold's node classes.
OWN: Final = "Sixfold"
_MAX_CHARS = 16_000


class Workflow(msgspec.Struct, frozen=True):
    """A named workflow: its graph, stored bytes, inputs (None if it has none) and metadata.

    `parts` are the models that the workflow runs. `version` is 0 for a built-in workflow.
    """

    slug: str
    name: str
    description: str
    kind: str
    output_kind: str
    graph: Graph
    content: bytes
    inputs: tuple[ApiInput, ...] | None
    content_type: str = "application/json"
    min_vram_gb: int = 0
    models: tuple[Mapping[str, Any], ...] = ()
    origins: tuple[Mapping[str, Any], ...] = ()
    source: Mapping[str, Any] = {}
    verification: Mapping[str, Any] = {}
    custom_nodes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    version: int = 0

    @property
    def model(self) -> str:
        return PREFIX + self.slug

    @property
    def record(self) -> dict[str, Any]:
        """The workflow in the form that the API shows."""
        return {
            "slug": self.slug,
            "name": self.name,
            "description": self.description,
            "kind": self.kind,
            "minVramGb": self.min_vram_gb,
            "nodeCount": len(self.graph),
            "apiInputs": [node_input.record for node_input in self.inputs]
            if self.inputs is not None
            else None,
            "customNodes": list(self.custom_nodes) or None,
            "models": [dict(model) for model in self.models if model["sources"]],
            "downloadPath": f"{PATH}/{self.slug}/download",
            "labs": [],
            "tutorials": [],
            "openSource": [dict(origin) for origin in self.origins] or None,
            "source": dict(self.source),
            "verification": dict(self.verification),
            "workflow": self.graph,
        }

    def row(self, owner: str = "") -> dict[str, Any]:
        """Return the workflow's model in the catalog's format; `owner` is the id of the owner's account."""
        return {
            "title": self.name,
            "description": self.description,
            "output_kind": self.output_kind,
            "task": "workflows",
            "price": "children",
            "engines": [ENGINE],
            "parts": list(self.parts),
            "inputs": {node_input.name: _descriptor(node_input) for node_input in self.inputs or ()},
            "fixed": {
                "space": self.slug,
                "_owner": owner,
                "graph": self.graph,
                "api_inputs": _plain(self.inputs or ()),
            },
        }


def _plain(inputs: Sequence[ApiInput]) -> list[dict[str, Any]]:
    return [node_input.record for node_input in inputs]


def _descriptor(each: ApiInput) -> dict[str, Any]:
    row: dict[str, Any] = {"type": each.type, "description": each.description, "required": each.required}
    if each.default is not None:
        row["default"] = each.default
    if each.type == "string":
        row["max_chars"] = _MAX_CHARS
    return row


def api_inputs(rows: Sequence[Mapping[str, Any]]) -> tuple[ApiInput, ...]:
    """Return inputs from the rows written by `ApiInput.record`."""
    return tuple(
        ApiInput(
            name=str(row["name"]),
            type=str(row["type"]),
            node_id=str(row["nodeId"]),
            field=str(row["field"]),
            default=row.get("default"),
            required=bool(row.get("required")),
            description=str(row.get("description", "")),
        )
        for row in rows
    )


def file_kind(graph: Graph, each: ApiInput, registry: Registry) -> str:
    """Return the kind of file that an input names, or an empty string for other inputs."""
    spec = registry.get(str(graph[each.node_id]["class_type"]))
    target = spec.by_name.get(each.field) if spec is not None else None
    return target.upload if target is not None else each.type if each.type in UPLOADS.values() else ""


def with_files(model: Model, registry: Registry) -> Model:
    """Return a workflow's model for a form: inputs whose text names a file have the type of this file."""
    graph = model.fixed.get("graph")
    if graph is None:
        return model
    named = api_inputs(model.fixed.get("api_inputs") or ())
    kinds = {each.name: file_kind(graph, each, registry) for each in named}
    inputs = [
        msgspec.structs.replace(each, type=kinds[each.name])
        if each.type == "string" and kinds.get(each.name) in UPLOADS.values()
        else each
        for each in model.inputs
    ]
    return msgspec.structs.replace(model, inputs=tuple(inputs))


def ordered(inputs: Mapping[str, Any], files: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return a task's graph with its inputs applied; `files` are names of files in the request."""
    values = {**inputs, **{name: SENT_FILE + name for name in files}}
    return apply(inputs["graph"], api_inputs(inputs.get("api_inputs") or ()), values)


def bundled(document: Mapping[str, Any], contents: Mapping[str, bytes]) -> dict[str, Workflow]:
    """Return the built-in workflows from their catalog file and each graph's bytes by slug."""
    files, origins = document.get("files", {}), document.get("origins", {})
    checked = mapping(document.get("verified"))
    return {
        slug: Workflow(
            slug=slug,
            name=row["name"],
            description=row["description"],
            kind=row["kind"],
            output_kind=row["outputKind"],
            graph=json.loads(contents[slug]),
            content=contents[slug],
            inputs=_inputs(row["inputs"]) if "inputs" in row else None,
            min_vram_gb=row["minVramGb"],
            models=tuple(files[name] for name in row.get("files", ())),
            origins=tuple(origins[name] for name in row.get("origins", ())),
            source={
                "label": "Sixfold",
                "url": f"{PATH}/{slug}/download",
                "license": "Apache-2.0",
                "adapted": False,
            },
            verification=mapping(checked.get(slug)) or unverified(),
            custom_nodes=_custom(json.loads(contents[slug])),
            parts=tuple(row.get("parts", ())),
        )
        for slug, row in document["spaces"].items()
    }


def unverified() -> dict[str, Any]:
    """Return the verification record of a workflow that has not been checked."""
    return {"status": "unverified", "checkedAt": "", "runtime": "", "evidence": ""}


def verified(space: Workflow, registry: Registry, day: str) -> dict[str, Any]:
    """Return the verification record after checking a workflow's graph and inputs on `day`."""
    validation = validate(space.graph, registry)
    missing = [
        node_input.name
        for node_input in space.inputs or ()
        if node_input.field not in mapping(mapping(space.graph.get(node_input.node_id)).get("inputs"))
    ]
    reasons = [str(fault["message"]) for fault in validation.errors] + [
        f"input {name} has no target" for name in missing
    ]
    if reasons:
        return {**unverified(), "checkedAt": day, "evidence": "; ".join(reasons)}
    nodes, inputs = count(len(space.graph), "node"), count(len(space.inputs or ()), "input")
    return {
        "status": "api-validated",
        "checkedAt": day,
        "runtime": "sixfold",
        "evidence": f"{nodes} checked against their classes, {inputs} against nodes",
    }


def _inputs(rows: Sequence[Mapping[str, Any]]) -> tuple[ApiInput, ...]:
    return tuple(
        ApiInput(
            row["name"],
            row["type"],
            row["node"],
            row["field"],
            row.get("default"),
            row["required"],
            row.get("description", ""),
        )
        for row in rows
    )


def _custom(graph: Graph) -> tuple[str, ...]:
    """Return the paths of Sixfold's classes, which this server describes."""
    class_types = sorted({str(node["class_type"]) for node in graph.values()})
    return tuple(f"/object_info/{name}" for name in class_types if name.startswith(OWN))


def foreign(graph: Graph, registry: Registry) -> Iterator[str]:
    """Yield the classes of a graph that are not in the registry."""
    for name in dict.fromkeys(str(node["class_type"]) for node in graph.values()):
        if name not in registry:
            yield name


def slug_of(name: str) -> str:
    """Return a name as a slug; empty if it has no usable character."""
    return plain_name(name, "-")[:80]
