"""Settings in, the place of graphs out: the spaces and classes that come with the program, and a ComfyUI."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold import import_string
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.clients.hosts import ProbeHosts
from sixfold.core.catalog.metering import CHILDREN
from sixfold.core.database import Database
from sixfold.core.media.media import MediaService
from sixfold.core.predictions.service import PredictionService
from sixfold.core.provenance.signing import Signer
from sixfold.core.workflows import workflows
from sixfold.core.workflows.limits import GraphLimits
from sixfold.core.workflows.nodes import Registry
from sixfold.core.workflows.pictures import PictureCodecs
from sixfold.core.workflows.service import PUBLIC, UNLOCK, GraphRuntime, GraphService
from sixfold.core.workflows.storage import GraphFiles
from sixfold.core.workflows.workflows import Workflow
from sixfold.engines.providers.comfyui.workflows import ComfyWorkflows
from sixfold.net.clients import HttpClients
from sixfold.settings import Settings

_SPACES = Path(__file__).parents[1] / "data" / "spaces"
_EXAMPLES = (".png", ".wav")


@functools.cache
def built_in_spaces() -> Mapping[str, Workflow]:
    """The workflow spaces that come with the program."""
    contents = {path.stem: path.read_bytes() for path in _SPACES.glob("*.json")}
    return workflows.bundled({**_read("catalogue"), "verified": _read("verified")}, contents)


def node_classes() -> Registry:
    """Every class of nodes that graphs may name."""
    classes: Registry = import_string.deferred("sixfold.engines.workflow_nodes.registry:registry")()
    return classes


def comfyui_address(settings: Settings) -> ComfyAddress:
    """The address of the operator's ComfyUI: the configured one, or one that is found on a probed host."""
    hosts = ProbeHosts(settings.probe_hosts, probe=settings.probe)
    return ComfyAddress(settings.comfyui_url, hosts, frozenset({settings.port, settings.comfyui_port}))


def comfyui(settings: Settings, clients: HttpClients, address: ComfyAddress) -> ComfyWorkflows | None:
    """The ComfyUI as a place where whole graphs run, or None where none may go there."""
    asked = bool(settings.comfyui_url) or settings.probe
    return ComfyWorkflows(clients.upstream, address) if asked and settings.graphs_go_to_comfyui else None


def build(
    settings: Settings,
    database: Database,
    media: MediaService,
    signer: Signer,
    road: PredictionService,
    theirs: ComfyWorkflows | None,
) -> GraphService:
    """Where graphs are checked, priced and run; a ComfyUI runs those with classes of its own."""
    examples = {path.name: path for path in _SPACES.iterdir() if path.suffix in _EXAMPLES}
    craft = GraphRuntime(
        node_classes,
        packer=import_string.deferred("sixfold.engines.workflow_nodes.serialization:NodeValuePacker"),
        pictures=PictureCodecs(
            viewed=import_string.deferred("sixfold.engines.workflow_nodes.preview:render"),
            viewed_bytes=import_string.deferred("sixfold.engines.workflow_nodes.preview:render_memory"),
            masked=import_string.deferred("sixfold.engines.workflow_nodes.mask_upload:apply_mask"),
            masked_bytes=import_string.deferred("sixfold.engines.workflow_nodes.mask_upload:mask_memory"),
        ),
        unlock=UNLOCK if settings.graphs_go_to_comfyui else PUBLIC,
        limits=GraphLimits(settings.graph_nodes, settings.graph_values, settings.json_body_bytes),
    )
    built = GraphService(
        craft, built_in_spaces(), GraphFiles(database, media, examples, signer), road, theirs
    )
    road.check, road.appraisers[CHILDREN] = built.checked, built.price
    road.prepare = built.prepare
    return built


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_SPACES / f"{name}.toml").read_text("utf-8"))
