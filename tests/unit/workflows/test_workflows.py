"""Built-in workflow spaces: their catalog entries agree with their graphs."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from sixfold.app import graphs as app_graphs
from sixfold.core.workflows import estimate, slices
from sixfold.core.workflows.validate import validate
from sixfold.core.workflows.workflows import Workflow
from sixfold.engines.workflow_nodes.registry import registry

LOADERS = {"ckpt_name", "lora_name", "unet_name", "clip_name", "vae_name", "control_net_name"}
SPACES = app_graphs.built_in_workflows()


def files_of(space: Workflow) -> set[str]:
    """The model files that the graph's nodes load."""
    return {
        str(value)
        for node in space.graph.values()
        for name, value in node["inputs"].items()
        if name in LOADERS or (name == "model_name" and node["class_type"] == "UpscaleModelLoader")
    }


@pytest.mark.parametrize("slug", SPACES)
def test_models_of_a_space_are_the_files_that_its_graph_loads(slug: str) -> None:
    space = SPACES[slug]
    assert {entry["file"] for entry in space.models} == files_of(space)


def test_model_file_sources_are_public_urls() -> None:
    entries = [entry for space in SPACES.values() for entry in space.models]
    assert len(entries) >= len(SPACES) - 6
    for entry in entries:
        assert entry["sources"], entry["file"]
        for source in entry["sources"]:
            parts = urlsplit(source)
            assert parts.scheme == "https", source
            assert parts.hostname in {"huggingface.co", "github.com"}, source
        stored = urlsplit(entry["sources"][0]).path.rpartition("/")[2]
        assert stored == entry["file"] or stored in entry.get("notes", ""), entry["file"]


@pytest.mark.parametrize("slug", SPACES)
def test_parts_of_a_space_are_the_models_that_its_graph_runs(slug: str) -> None:
    space = SPACES[slug]
    requests = slices.complete(estimate.child_request_steps(validate(space.graph, registry())))
    assert space.parts == tuple(dict.fromkeys(request.model for _, request in requests))
