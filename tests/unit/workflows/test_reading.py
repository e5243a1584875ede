"""Analysis of a graph: inputs, files, differences and drawing."""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree

import pytest

from sixfold.core.workflows import diff, input_inference, model_files, node_definitions, slices
from sixfold.core.workflows.editor_format.to_api import convert
from sixfold.core.workflows.svg import layout, thumbnail
from sixfold.engines.workflow_nodes import registry
from tests import loop_time
from tests.unit.workflows import corpus
from tests.unit.workflows.tiny_graphs import node

REGISTRY = registry.registry()
PAINT: dict[str, dict[str, Any]] = {
    "1": node("CheckpointLoaderSimple", ckpt_name="base.safetensors"),
    "2": {**node("CLIPTextEncode", text="a lake", clip=["1", 1]), "_meta": {"title": "Wanted"}},
    "3": node("CLIPTextEncode", text="people", clip=["1", 1]),
    "4": node("EmptyLatentImage", width=64, height=48, batch_size=1),
    "5": node(
        "KSampler",
        model=["1", 0],
        positive=["2", 0],
        negative=["3", 0],
        latent_image=["4", 0],
        seed=7,
        steps=20,
        cfg=5.0,
        sampler_name="euler",
        scheduler="normal",
        denoise=1.0,
    ),
    "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
    "7": node("SaveImage", images=["6", 0], filename_prefix="x"),
}


@pytest.mark.parametrize(
    ("class_type", "field", "kind"),
    [("LoadImage", "image", "image"), ("LoadAudio", "audio", "audio"), ("LoadVideo", "file", "video")],
)
def test_a_node_that_loads_a_file_has_an_input_of_its_kind(class_type: str, field: str, kind: str) -> None:
    graph = {"1": node(class_type, **{field: "example"})}
    (found,) = slices.complete(input_inference.infer_steps(graph, REGISTRY))
    assert (found.name, found.type, found.required) == (kind, kind, True)


def test_inputs_are_inferred_by_their_use() -> None:
    result = {each.name: each for each in slices.complete(input_inference.infer_steps(PAINT, REGISTRY))}
    assert list(result)[:2] == ["prompt", "negative_prompt"]
    assert {name: (each.type, each.node_id, each.field) for name, each in result.items()} == {
        "prompt": ("string", "2", "text"),
        "negative_prompt": ("string", "3", "text"),
        "width": ("integer", "4", "width"),
        "height": ("integer", "4", "height"),
        "seed": ("integer", "5", "seed"),
        "steps": ("integer", "5", "steps"),
        "cfg": ("number", "5", "cfg"),
        "denoise": ("number", "5", "denoise"),
    }
    assert [name for name, each in result.items() if each.required] == ["prompt"]
    assert result["prompt"].record == {
        "name": "prompt",
        "type": "string",
        "nodeId": "2",
        "field": "text",
        "required": True,
        "default": "a lake",
        "description": "Wanted",
    }


def test_prompts_are_classified_through_intermediate_nodes() -> None:
    graph = copy.deepcopy(PAINT)
    graph["8"] = node("ControlNetApplyAdvanced", positive=["2", 0], negative=["3", 0], strength=0.5)
    graph["5"]["inputs"] |= {"positive": ["8", 0], "negative": ["8", 1]}
    names = {
        each.node_id: each.name
        for each in slices.complete(input_inference.infer_steps(graph, REGISTRY))
        if each.type == "string"
    }
    assert names == {"2": "prompt", "3": "negative_prompt"}


def test_files_are_the_first_inputs_and_required() -> None:
    graph = {**PAINT, "8": node("LoadImage", image="a.png"), "9": node("LoadVideo", file="b.mp4")}
    first, second, *_ = slices.complete(input_inference.infer_steps(graph, REGISTRY))
    assert (first.name, first.type, first.required) == ("image", "image", True)
    assert (second.name, second.type, second.field) == ("video", "video", "file")


def test_inputs_are_applied_to_a_copy_of_the_graph() -> None:
    before = copy.deepcopy(PAINT)
    changed_graph = input_inference.apply(
        PAINT,
        slices.complete(input_inference.infer_steps(PAINT, REGISTRY)),
        {"prompt": "a sea", "seed": 9, "odd": 1},
    )
    assert (changed_graph["2"]["inputs"]["text"], changed_graph["5"]["inputs"]["seed"]) == ("a sea", 9)
    assert before == PAINT


def test_model_files_are_named_once_with_kind_and_source() -> None:
    graph = {
        **PAINT,
        "8": node("LoraLoader", lora_name="thin.safetensors"),
        "9": node("Odd", weights="odd.pth"),
    }
    messages = [{"name": "thin.safetensors", "url": "https://example.org/thin", "directory": "loras"}]
    result = {each.file: each for each in model_files.find(graph, REGISTRY, messages)}
    assert {file: each.kind for file, each in result.items()} == {
        "base.safetensors": "checkpoint",
        "thin.safetensors": "lora",
        "odd.pth": "checkpoint",
    }
    assert result["thin.safetensors"].sources == ("https://example.org/thin",)


def test_renamed_nodes_are_not_a_difference() -> None:
    other = {f"n{node_id}": copy.deepcopy(each) for node_id, each in reversed(PAINT.items())}
    for each in other.values():
        each["inputs"] = {
            name: [f"n{value[0]}", value[1]] if isinstance(value, list) else value
            for name, value in each["inputs"].items()
        }
    result = slices.complete(diff.compare_steps(PAINT, other))
    assert result.equal
    assert result.record["renamed"]["5"] == "n5"


def test_differences_are_reported_by_node_and_input() -> None:
    other = copy.deepcopy(PAINT)
    other["5"]["inputs"]["seed"] = 8
    other["8"] = node("ImageInvert", image=["6", 0])
    other["7"]["inputs"]["images"] = ["8", 0]
    result = slices.complete(diff.compare_steps(PAINT, other))
    assert (result.added, result.removed) == (("8",), ())
    assert [(each["node_id"], each["input"], each["from"], each["to"]) for each in result.changed] == [
        ("5", "seed", 7, 8),
        ("7", "images", ["6", 0], ["8", 0]),
    ]


def test_drawing_has_every_node_and_link_without_graph_markup() -> None:
    graph = copy.deepcopy(PAINT)
    graph["2"]["_meta"] = {"title": "<script>alert(1)</script>"}
    root = ElementTree.fromstring(layout.draw(graph, REGISTRY, "A & B"))  # noqa: S314  # it is our own
    space = "{http://www.w3.org/2000/svg}"
    boxes = {each.get("data-node"): each for each in root.iter(f"{space}g") if each.get("data-node")}
    assert set(boxes) == set(graph)
    assert len([each for each in root.iter(f"{space}path") if each.get("data-from")]) == 9
    assert not list(root.iter(f"{space}script"))
    positions = {node_id: _place(each) for node_id, each in boxes.items()}
    assert positions["1"][0] < positions["2"][0] < positions["5"][0] < positions["6"][0] < positions["7"][0]
    for name, (x, y) in positions.items():
        for other, (left, top) in positions.items():
            assert name == other or x != left or abs(y - top) > 60


def _place(group: ElementTree.Element) -> tuple[float, float]:
    x, y = str(group.get("transform")).removeprefix("translate(").removesuffix(")").split()
    return float(x), float(y)


def test_compact_drawing_has_titles_without_values() -> None:
    graph = {
        "1": node("CLIPTextEncode", text="a fox"),
        "2": node("VAE", samples=["1", 0]) | {"_meta": {"title": ""}},
    }
    graph["3"] = node("Add") | {"_meta": {"title": "A very long title of a node that has two lines"}}
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(layout.draw(graph, compact=True))  # noqa: S314  # it is our own
    texts = [[each.text for each in group.iter(f"{space}text")] for group in root.iter(f"{space}g")]
    assert texts == [["CLIPText", "Encode"], ["VAE"], ["A very long", "title of a n…"]]
    assert {rect.get("width") for rect in root.iter(f"{space}rect") if rect.get("class") == "card"} == {"108"}


def test_sketch_has_every_node_in_its_frame_and_fitting_names() -> None:
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(thumbnail.sketch(PAINT, REGISTRY))  # noqa: S314  # it is our own
    blocks = [
        [float(each.get(name, "0")) for name in ("x", "y", "width", "height")]
        for each in root.iter(f"{space}rect")
    ]
    assert len(blocks) == len(PAINT)
    assert all(0 <= x <= x + wide <= 320 and 0 <= y <= y + tall <= 180 for x, y, wide, tall in blocks)
    assert not list(root.iter(f"{space}text"))
    two = {"1": node("Text <b>", value="x"), "2": node("Shown", text=["1", 0])}
    root = ElementTree.fromstring(thumbnail.sketch(two, REGISTRY))  # noqa: S314  # it is our own
    assert [each.text for each in root.iter(f"{space}text")] == ["Text <b>", "Shown"]
    many = {str(at): node("Add") for at in range(1000)}
    assert "1,000 nodes" in thumbnail.sketch(many, REGISTRY)


def test_drawing_reads_a_bounded_part_of_a_graph() -> None:
    links = {f"in{at}": ["1", 0] for at in range(30_000)}
    graph = {"1": node("Add"), "2": node("Add", **links)}
    assert "too many to draw" in layout.draw(graph)
    assert loop_time.cpu_seconds(lambda: layout.draw(graph), 0.01) < 0.01
    long = {"1": node("Show", **{"text" * 10_000: "a b" * 100_000}) | {"_meta": {"title": "x" * 100_000}}}
    assert len(layout.draw(long)) < 10_000
    values = {f"in{at}": "a b" for at in range(30_000)}
    graph = {"1": node("Add", **values)}
    assert loop_time.cpu_seconds(lambda: layout.draw(graph), 0.01) < 0.01


def test_cyclic_and_empty_graphs_can_be_drawn() -> None:
    for graph in ({}, {"1": node("Add", a=["2", 0]), "2": node("Add", a=["1", 0])}):
        ElementTree.fromstring(layout.draw(graph))  # noqa: S314  # it is our own
        ElementTree.fromstring(thumbnail.sketch(graph, REGISTRY))  # noqa: S314  # it is our own


def test_invalid_signature_is_refused() -> None:
    with pytest.raises(ValueError, match="->"):
        node_definitions.parse("X", "a INT")
    with pytest.raises(ValueError, match="not valid"):
        node_definitions.parse("X", "a INT odd -> INT")


@corpus.here
def test_node_definitions_agree_with_comfyui() -> None:
    server = corpus.schemas()
    checked = 0
    for spec in registry.read():
        if spec.category.startswith("sixfold") or spec.class_type not in server:
            continue
        theirs = server[spec.class_type]
        remaining = [each for each in theirs.inputs if each.section != "hidden"]
        assert [(each.name, each.type, each.section) for each in spec.inputs] == [
            (each.name, each.type, each.section) for each in remaining
        ], spec.class_type
        for ours, other in zip(spec.inputs, remaining, strict=True):
            for bound in ("min", "max"):
                assert ours.options.get(bound) == other.options.get(bound), (spec.class_type, ours.name)
            if not ours.options.get("folder") and not ours.upload:
                assert ours.choices == other.choices, (spec.class_type, ours.name)
        assert [output.type for output in spec.outputs] == [output.type for output in theirs.outputs]
        checked += 1
    assert checked >= 370


@corpus.here
def test_every_graph_of_the_corpus_is_read_and_drawn() -> None:
    for path in [*corpus.TEMPLATES, *corpus.PAIRS]:
        graph = convert(corpus.load(path), REGISTRY).graph
        names = [each.name for each in slices.complete(input_inference.infer_steps(graph, REGISTRY))]
        assert len(names) == len(set(names)), path.name
        assert model_files.find(graph, REGISTRY) is not None
        ElementTree.fromstring(layout.draw(graph, REGISTRY))  # noqa: S314  # it is our own
