"""Inference of the inputs of a graph: its files, texts and numbers, each with a simple name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sixfold.core.workflows import slices
from sixfold.core.workflows.documents import as_list, mapping, plain_name
from sixfold.core.workflows.nodes import UPLOADS, Graph, NodeInput, NodeSpec, Registry, is_link
from sixfold.core.workflows.slices import Steps

# Fields of samplers and latents that users set, and their public names.
_PLAIN = {
    "seed": "seed",
    "noise_seed": "seed",
    "steps": "steps",
    "cfg": "cfg",
    "guidance": "guidance",
    "denoise": "denoise",
    "width": "width",
    "height": "height",
    "length": "length",
    "duration": "duration",
    "duration_seconds": "duration_seconds",
    "strength_model": "lora_strength",
    "strength": "strength",
    "megapixels": "megapixels",
    "scale_by": "scale",
    "fps": "fps",
}
# Sizes count as inputs of nodes that create a latent or an image, not of nodes that change one.
_SIZED = ("width", "height", "length")
_MAKERS = re.compile(r"^Empty|ToVideo$|^SixfoldTextToImage$|ToVideoLatent$")
_WORDS = ("text", "prompt", "value", "text_g", "t5xxl", "lyrics", "tags", "style_prompt")
_TYPES = {"INT": "integer", "FLOAT": "number"}


class ApiInput(msgspec.Struct, frozen=True):
    """One input of a graph: its node and field, its type and its default."""

    name: str
    type: str
    node_id: str
    field: str
    default: Any
    required: bool
    description: str = ""

    @property
    def record(self) -> dict[str, Any]:
        """The input in the form that the API shows."""
        result: dict[str, Any] = {
            "name": self.name,
            "type": self.type,
            "nodeId": self.node_id,
            "field": self.field,
            "required": self.required,
        }
        if self.default is not None:
            result["default"] = self.default
        if self.description:
            result["description"] = self.description
        return result


def infer_steps(graph: Graph, registry: Registry) -> Steps[tuple[ApiInput, ...]]:
    """Return the inputs of a graph: files, prompts, then numbers; a number is appended to duplicate names."""
    negatives = _leading(graph, "negative")
    yield
    negatives -= _leading(graph, "positive")
    inputs: list[ApiInput] = []
    for at, (node_id, node) in enumerate(graph.items()):
        if at % slices.ITEMS == 0:
            yield
        spec = registry.get(str(node["class_type"]))
        for name, value in mapping(node.get("inputs")).items():
            if not is_link(value) and (api_input := _of(node_id, node, spec, name)) is not None:
                inputs.append(_negative(api_input) if node_id in negatives else api_input)
    order = {**dict.fromkeys(UPLOADS.values(), 0), "string": 1, "integer": 2, "number": 2}
    inputs.sort(key=lambda each: order[each.type])
    yield
    result: list[ApiInput] = []
    for at, api_input in enumerate(_unique_names(inputs, graph)):
        if at % slices.ITEMS == 0:
            yield
        result.append(api_input)
    return tuple(result)


def _of(node_id: str, node: Mapping[str, Any], spec: NodeSpec | None, name: str) -> ApiInput | None:
    value = mapping(node.get("inputs"))[name]
    node_input = spec.by_name.get(name) if spec is not None else None
    if node_input is not None and node_input.upload:
        return ApiInput(node_input.upload, node_input.upload, node_id, name, value, required=True)
    if isinstance(value, str) and name in _WORDS and (node_input is None or node_input.type == "STRING"):
        plain = _slug(node) if name == "value" else "prompt" if name != "lyrics" else name
        return ApiInput(plain, "string", node_id, name, value, required=plain == "prompt")
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_input(node, name):
        return None
    kind = _TYPES.get(
        node_input.type if node_input else "", "integer" if isinstance(value, int) else "number"
    )
    plain = _slug(node) if name == "value" else _PLAIN[name]
    return ApiInput(plain, kind, node_id, name, value, required=False, description=_range(node_input))


def _is_input(node: Mapping[str, Any], name: str) -> bool:
    class_type = str(node["class_type"])
    if name == "value":
        return class_type.startswith("Primitive")
    if name in _SIZED:
        return bool(_MAKERS.search(class_type))
    return name in _PLAIN


def _range(node_input: NodeInput | None) -> str:
    low, high = (node_input.options.get(end) if node_input else None for end in ("min", "max"))
    if not isinstance(low, int | float) or not isinstance(high, int | float) or high > 2**31:
        return ""
    return f"{low:g} to {high:g}"


def _slug(node: Mapping[str, Any]) -> str:
    """Return a primitive's title as its name, if the user has set one."""
    slug = plain_name(str(mapping(node.get("_meta")).get("title") or ""), "_")
    default = {"string", "int", "float", "boolean", "string_multiline", "text"}
    return slug if slug and slug not in default and not slug.startswith("primitive") else "value"


def _leading(graph: Graph, side: str) -> set[str]:
    """Return the nodes that feed inputs named `side`; those of `negative` contain negative prompts."""
    stack = [
        str(link[0])
        for node in graph.values()
        for name, link in mapping(node.get("inputs")).items()
        if name == side and is_link(link)
    ]
    seen: set[str] = set()
    while stack:
        node_id = stack.pop()
        if node_id in seen or node_id not in graph:
            continue
        seen.add(node_id)
        links = mapping(graph[node_id].get("inputs"))
        has_both = "positive" in links and "negative" in links
        names = [side] if has_both else [name for name in links if name not in ("model", "clip", "vae")]
        stack += [str(links[name][0]) for name in names if is_link(links[name])]
    return seen


def _negative(api_input: ApiInput) -> ApiInput:
    if api_input.name != "prompt":
        return api_input
    return ApiInput(
        "negative_prompt",
        api_input.type,
        api_input.node_id,
        api_input.field,
        api_input.default,
        required=False,
    )


def _unique_names(inputs: list[ApiInput], graph: Graph) -> Iterator[ApiInput]:
    """Yield the inputs with unique names, appending a number to duplicates."""
    count: dict[str, int] = {}
    for node_input in inputs:
        count[node_input.name] = at = count.get(node_input.name, 0) + 1
        name = node_input.name if at == 1 else f"{node_input.name}_{at}"
        title = str(mapping(graph[node_input.node_id].get("_meta")).get("title") or "")
        result = node_input.description or (title if node_input.type == "string" else "")
        yield ApiInput(
            name,
            node_input.type,
            node_input.node_id,
            node_input.field,
            node_input.default,
            node_input.required and at == 1,
            result,
        )


def apply(graph: Graph, inputs: tuple[ApiInput, ...], values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a copy of the graph with the caller's values in the fields of its inputs."""
    changed = {
        node_id: {**node, "inputs": dict(mapping(node.get("inputs")))} for node_id, node in graph.items()
    }
    for node_input in inputs:
        if node_input.name in values and node_input.node_id in changed:
            value = values[node_input.name]
            items = as_list(value)
            wrapped = {"__value__": items} if items else value
            changed[node_input.node_id]["inputs"][node_input.field] = wrapped
    return changed
