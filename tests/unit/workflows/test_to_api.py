"""Conversion of the editor's format equals the editor's own export."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from sixfold.core.workflows import diff, image_metadata, slices
from sixfold.core.workflows.editor_format import flatten as flattening
from sixfold.core.workflows.editor_format.flatten import InvalidSubgraph
from sixfold.core.workflows.editor_format.to_api import NotAWorkflow, convert
from sixfold.core.workflows.limits import GraphTooLarge
from sixfold.core.workflows.nodes import Registry
from sixfold.engines.workflow_nodes import registry as workflow_nodes_registry
from tests.unit.workflows import corpus
from tests.unit.workflows.tiny_graphs import node


def editor_document(
    at: int, kind: str, values: Any = None, inputs: Any = (), outputs: Any = (), **more: Any
) -> dict[str, Any]:
    slots = [{"name": name, "type": type_, "link": link} for name, type_, link in inputs]
    ends = [{"name": type_, "type": type_, "links": []} for type_ in outputs]
    return {
        "id": at,
        "type": kind,
        "inputs": slots,
        "outputs": ends,
        "widgets_values": values,
        "mode": 0,
        **more,
    }


def sheet(*nodes: dict[str, Any], links: Any = (), **more: Any) -> dict[str, Any]:
    return {"nodes": list(nodes), "links": [list(link) for link in links], "version": 0.4, **more}


def inputs(document: Any) -> dict[str, dict[str, Any]]:
    graph = convert(document, workflow_nodes_registry.registry()).graph
    return {node_id: dict(each["inputs"]) for node_id, each in graph.items()}


def test_unnamed_values_follow_the_schema_without_editor_fields() -> None:
    values = [42, "randomize", 20, 5.5, "euler", "normal", 1]
    assert inputs(sheet(editor_document(3, "KSampler", values)))["3"] == {
        "seed": 42,
        "steps": 20,
        "cfg": 5.5,
        "sampler_name": "euler",
        "scheduler": "normal",
        "denoise": 1,
    }


def test_links_pass_reroutes_and_bypasses_and_end_at_muted() -> None:
    document = sheet(
        editor_document(1, "LoadImage", ["a.png", "image"], outputs=("IMAGE", "MASK")),
        editor_document(2, "Reroute", None, [("", "*", 10)], ("IMAGE",)),
        editor_document(3, "ImageInvert", None, [("image", "IMAGE", 11)], ("IMAGE",), mode=4),
        editor_document(4, "SaveImage", ["x"], [("images", "IMAGE", 12)]),
        editor_document(5, "ImageInvert", None, [("image", "IMAGE", 13)], ("IMAGE",), mode=2),
        editor_document(6, "PreviewImage", None, [("images", "IMAGE", 14)]),
        editor_document(7, "Note", ["words"]),
        links=[
            (10, 1, 0, 2, 0, "IMAGE"),
            (11, 2, 0, 3, 0, "IMAGE"),
            (12, 3, 0, 4, 0, "IMAGE"),
            (13, 1, 0, 5, 0, "IMAGE"),
            (14, 5, 0, 6, 0, "IMAGE"),
        ],
    )
    assert inputs(document) == {
        "1": {"image": "a.png"},
        "4": {"filename_prefix": "x", "images": ["1", 0]},
        "6": {},
    }


def test_primitive_node_is_replaced_by_its_value() -> None:
    document = sheet(
        editor_document(1, "PrimitiveNode", [77, "fixed"], outputs=("INT",)),
        editor_document(2, "EmptyLatentImage", [512, 512, 1], [("width", "INT", 5)]),
        links=[(5, 1, 0, 2, 0, "INT")],
    )
    assert inputs(document)["2"] == {"width": 77, "height": 512, "batch_size": 1}


def test_lists_that_are_values_are_wrapped_and_titles_are_kept() -> None:
    graph = convert(
        sheet(editor_document(1, "PrimitiveString", [["a", "b"]], title="Words")),
        workflow_nodes_registry.registry(),
    ).graph
    assert graph["1"] == {
        "class_type": "PrimitiveString",
        "inputs": {"value": {"__value__": ["a", "b"]}},
        "_meta": {"title": "Words"},
    }


def test_subgraph_is_expanded_with_values_and_links_of_its_host() -> None:
    definition = {
        "id": "abc",
        "inputs": [{"name": "image", "type": "IMAGE"}, {"name": "radius", "type": "INT"}],
        "outputs": [{"name": "IMAGE", "type": "IMAGE"}],
        "nodes": [
            editor_document(
                9, "ImageBlur", [5, 1.0], [("image", "IMAGE", 1), ("blur_radius", "INT", 2)], ("IMAGE",)
            )
        ],
        "links": [
            {"id": 1, "origin_id": -10, "origin_slot": 0, "target_id": 9, "target_slot": 0},
            {"id": 2, "origin_id": -10, "origin_slot": 1, "target_id": 9, "target_slot": 1},
            {"id": 3, "origin_id": 9, "origin_slot": 0, "target_id": -20, "target_slot": 0},
        ],
    }
    document = sheet(
        editor_document(1, "LoadImage", ["a.png"], outputs=("IMAGE", "MASK")),
        editor_document(2, "abc", [7], [("image", "IMAGE", 20)], ("IMAGE",)),
        editor_document(3, "SaveImage", ["x"], [("images", "IMAGE", 21)]),
        links=[(20, 1, 0, 2, 0, "IMAGE"), (21, 2, 0, 3, 0, "IMAGE")],
        definitions={"subgraphs": [definition]},
    )
    result = inputs(document)
    assert result["2:9"] == {"blur_radius": 7, "sigma": 1.0, "image": ["1", 0]}
    assert result["3"]["images"] == ["2:9", 0]


def test_group_node_is_expanded() -> None:
    group = {
        "nodes": [
            {
                "type": "ImageInvert",
                "inputs": [{"name": "image", "type": "IMAGE"}],
                "outputs": [{"type": "IMAGE"}],
            },
            {
                "type": "ImageBlur",
                "inputs": [{"name": "image", "type": "IMAGE"}],
                "outputs": [{"type": "IMAGE"}],
                "widgets_values": [1, 1.0],
            },
        ],
        "links": [[0, 0, 1, 0, 5, "IMAGE"]],
        "external": [],
    }
    document = sheet(
        editor_document(1, "LoadImage", ["a.png"], outputs=("IMAGE", "MASK")),
        editor_document(2, "workflow>Soft", [3, 0.5], [("image", "IMAGE", 20)], ("IMAGE",)),
        editor_document(3, "PreviewImage", None, [("images", "IMAGE", 21)]),
        links=[(20, 1, 0, 2, 0, "IMAGE"), (21, 2, 0, 3, 0, "IMAGE")],
        extra={"groupNodes": {"Soft": group}},
    )
    result = inputs(document)
    assert result["2:0"] == {"image": ["1", 0]}
    assert result["2:1"] == {"blur_radius": 3, "sigma": 0.5, "image": ["2:0", 0]}
    assert result["3"] == {"images": ["2:1", 0]}


def test_unknown_classes_are_reported_and_still_converted() -> None:
    slots = [{"name": "size", "type": "INT", "link": None, "widget": {"name": "size"}}]
    document = sheet({**editor_document(1, "Foreign", [12]), "inputs": slots})
    result = convert(document, Registry())
    assert result.unknown == {"Foreign": ("1",)}
    assert result.graph["1"]["inputs"] == {"size": 12}


def test_graph_in_api_format_is_unchanged() -> None:
    graph = {"1": node("PrimitiveInt", value=3)}
    assert convert(graph, workflow_nodes_registry.registry()).graph == graph
    assert convert({"prompt": graph, "client_id": "x"}, workflow_nodes_registry.registry()).graph == graph


@pytest.mark.parametrize(
    "document", [None, [], {}, {"a": 1}, {"nodes": [3], "links": []}, {"nodes": [], "links": [[1]]}]
)
def test_invalid_workflow_is_refused_or_empty(document: Any) -> None:
    with contextlib.suppress(NotAWorkflow):
        assert convert(document, workflow_nodes_registry.registry()).graph == {}


def test_workflow_of_an_image_is_read(tmp_path: Any) -> None:
    graph = {"1": node("PrimitiveString", value="größer")}
    info = PngInfo()
    info.add_text("prompt", json.dumps(graph))
    image = Image.new("RGB", (2, 2))
    image.save(tmp_path / "a.png", pnginfo=info)
    exif = Image.Exif()
    exif[0x0110] = f"prompt:{json.dumps(graph)}"
    image.save(tmp_path / "a.webp", exif=exif)
    for name in ("a.png", "a.webp"):
        assert image_metadata.read((tmp_path / name).read_bytes()) == graph
    image.save(tmp_path / "b.png")
    plain = (tmp_path / "b.png").read_bytes()
    with pytest.raises(NotAWorkflow, match="not contain a workflow"):
        image_metadata.read(plain)
    marked = image_metadata.embed(plain, graph)
    (tmp_path / "c.png").write_bytes(marked)
    with Image.open(tmp_path / "c.png") as again:
        again.load()
        assert json.loads(again.info["prompt"]) == graph
    assert image_metadata.read(marked) == graph


@corpus.here
@pytest.mark.parametrize("known", ["the server's schemas", "our own tables"])
def test_converted_workflows_equal_the_executed_graphs(known: str) -> None:
    registry = corpus.schemas() if known.startswith("the") else workflow_nodes_registry.registry()

    def read_seen(graph: Any) -> Any:
        """Return the inputs of the schema; a server ignores others."""
        return {
            node_id: {
                "class_type": each["class_type"],
                "inputs": {
                    name: value
                    for name, value in each["inputs"].items()
                    if each["class_type"] not in registry or name in registry[each["class_type"]].by_name
                },
            }
            for node_id, each in graph.items()
        }

    different = [
        path.name
        for path in corpus.PAIRS
        if not slices.complete(
            diff.compare_steps(
                read_seen(corpus.load(path.with_name(path.name.replace(".ui.", ".api.")))),
                read_seen(convert(corpus.load(path), registry).graph),
            )
        ).equal
    ]
    assert len(corpus.PAIRS) >= 54
    assert len(different) <= 0.03 * len(corpus.PAIRS), different


@corpus.here
def test_every_template_converts_and_lists_unknown_classes() -> None:
    assert len(corpus.TEMPLATES) >= 48
    for path in corpus.TEMPLATES:
        result = convert(corpus.load(path), workflow_nodes_registry.registry())
        assert result.graph, path.name
        known = {str(each["class_type"]) for each in result.graph.values()} - set(result.unknown)
        assert known <= {spec.class_type for spec in workflow_nodes_registry.registry()}
        for each in result.graph.values():
            links = [value for value in each["inputs"].values() if isinstance(value, list)]
            assert all(link[0] in result.graph for link in links), path.name


def with_definitions(name: str, *nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "nodes": list(nodes), "links": [], "inputs": [], "outputs": [], **more}


def nested_subgraphs(depth: int, each: int = 2) -> dict[str, Any]:
    """Return subgraphs that contain `count` of the next each, and the last one a node."""
    results = [
        with_definitions(f"s{at}", *(editor_document(n, f"s{at + 1}") for n in range(each)))
        for at in range(depth)
    ]
    results.append(with_definitions(f"s{depth}", editor_document(0, "PrimitiveString", ["x"])))
    return sheet(editor_document(1, "s0"), definitions={"subgraphs": results})


@pytest.fixture
def expanded_ids(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of all nodes that an opened document expands to."""
    ids: list[str] = []
    make = flattening.EditorNode

    def counted(*args: Any, **kwargs: Any) -> Any:
        node = make(*args, **kwargs)
        ids.append(node.id)
        return node

    monkeypatch.setattr(flattening, "EditorNode", counted)
    return ids


@pytest.mark.parametrize("depth", [14, 31])
def test_subgraphs_with_too_many_nodes_are_refused_early(expanded_ids: list[str], depth: int) -> None:
    with pytest.raises(GraphTooLarge, match="at most 5,000 nodes after its subgraphs are expanded"):
        convert(nested_subgraphs(depth), workflow_nodes_registry.registry())
    assert len(expanded_ids) < 3 * 5_000


def test_a_subgraph_that_contains_itself_is_refused_at_once(expanded_ids: list[str]) -> None:
    inside = [
        with_definitions("a", editor_document(1, "b"), editor_document(2, "b")),
        with_definitions("b", editor_document(1, "a"), editor_document(2, "a")),
    ]
    for kind, definitions in (("a", [with_definitions("a", editor_document(1, "a"))]), ("b", inside)):
        with pytest.raises(InvalidSubgraph, match=f"The subgraph '{kind}' contains itself"):
            convert(
                sheet(editor_document(1, kind), definitions={"subgraphs": definitions}),
                workflow_nodes_registry.registry(),
            )
    assert len(expanded_ids) < 20


def test_subgraphs_nested_deeper_than_32_are_refused() -> None:
    assert len(convert(nested_subgraphs(31, each=1), workflow_nodes_registry.registry()).graph) == 1
    with pytest.raises(InvalidSubgraph, match="at most 32 deep"):
        convert(nested_subgraphs(32, each=1), workflow_nodes_registry.registry())


@pytest.mark.parametrize(
    "node",
    [
        editor_document(0, "PrimitiveString", ["x" * 10_000]),
        editor_document(0, "PrimitiveString", ["x"], title="t" * 10_000),
        editor_document(0, "PrimitiveString", ["x"], inputs=[("n" * 10_000, "*", None)]),
        editor_document(0, "k" * 10_000, ["x"]),
        editor_document(0, "PrimitiveString", ["x"], properties={"models": [{"url": "u" * 10_000}]}),
    ],
    ids=["value", "title", "name", "class", "model"],
)
def test_text_is_counted_for_each_time_that_a_subgraph_is_opened(node: dict[str, Any]) -> None:
    definitions = {"subgraphs": [with_definitions("s", node)]}
    hosts = [editor_document(at, "s") for at in range(200)]
    assert convert(sheet(*hosts[:50], definitions=definitions), workflow_nodes_registry.registry()).graph
    with pytest.raises(GraphTooLarge, match="bytes of text"):
        convert(sheet(*hosts, definitions=definitions), workflow_nodes_registry.registry())


def test_definition_links_are_read_once_for_many_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    links = flattening.links_by_id

    def counted(graph: Any) -> Any:
        read.append(graph)
        return links(graph)

    monkeypatch.setattr(flattening, "links_by_id", counted)
    many = [[at, 1, 0, 2, 0, "STRING"] for at in range(1000)]
    definition = with_definitions("s", editor_document(1, "PrimitiveString", ["x"]), links=many)
    document = sheet(
        *(editor_document(at, "s") for at in range(500)), definitions={"subgraphs": [definition]}
    )
    assert len(convert(document, workflow_nodes_registry.registry()).graph) == 500
    assert len(read) == 2


def test_long_reroute_chain_is_followed_once() -> None:
    chain = [editor_document(0, "PrimitiveString", ["x"], outputs=("STRING",))]
    chain += [editor_document(at, "Reroute", inputs=[("", "*", at)], outputs=("*",)) for at in range(1, 1001)]
    links = [[at, at - 1, 0, at, 0, "*"] for at in range(1, 1001)]
    links += [[2000 + at, 1000, 0, 2000 + at, 0, "*"] for at in range(1000)]
    nodes = [
        editor_document(2000 + at, "PreviewAny", inputs=[("source", "*", 2000 + at)]) for at in range(1000)
    ]
    document = sheet(*chain, *nodes, links=links)
    graph = convert(document, workflow_nodes_registry.registry()).graph
    assert {tuple(graph[str(2000 + at)]["inputs"]["source"]) for at in range(1000)} == {("0", 0)}
    for at, node_ in enumerate(nodes):
        node_["inputs"][0]["type"] = f"T{at}"
    with pytest.raises(GraphTooLarge, match="at most 100,000 reroutes"):
        convert(document, workflow_nodes_registry.registry())


def test_cycle_of_reroutes_gives_no_link() -> None:
    document = sheet(
        editor_document(1, "Reroute", inputs=[("", "*", 2)], outputs=("*",)),
        editor_document(2, "Reroute", inputs=[("", "*", 1)], outputs=("*",)),
        editor_document(3, "PreviewAny", inputs=[("source", "*", 3)]),
        links=[(1, 1, 0, 2, 0, "*"), (2, 2, 0, 1, 0, "*"), (3, 2, 0, 3, 0, "*")],
    )
    assert inputs(document) == {"3": {}}
