"""Construction of the workflow service: bundled workflows, node classes, and the connection to ComfyUI."""

from __future__ import annotations

import asyncio
import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from sixfold import import_string, setting_values
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.clients.comfyui.errors import ComfyError
from sixfold.clients.comfyui.server import ComfyLimits, ComfyServer
from sixfold.clients.hosts import ProbeHosts
from sixfold.core.catalog.metering import CHILDREN
from sixfold.core.configuration import entries
from sixfold.core.configuration.ports import ServerProbe
from sixfold.core.database import Database
from sixfold.core.media.media import MediaService
from sixfold.core.predictions.service import PredictionService
from sixfold.core.provenance.signing import Signer
from sixfold.core.workflows import object_info, workflows
from sixfold.core.workflows.comfyui.image_editor import ImageCodecs
from sixfold.core.workflows.limits import GraphLimits
from sixfold.core.workflows.nodes import Registry
from sixfold.core.workflows.service import PUBLIC, UNLOCK, GraphRuntime, GraphService
from sixfold.core.workflows.storage import GraphFiles
from sixfold.core.workflows.workflows import Workflow
from sixfold.engines.providers.comfyui.workflows import ComfyWorkflows
from sixfold.net.clients import HttpClients
from sixfold.settings import InvalidSetting, Settings

_ORIGIN = re.compile(r"https?://[^/?#@\s]+")
_PROBE_LIMITS = ComfyLimits(connect_seconds=3.0, answer_seconds=10.0)
_FOLDER = Path(__file__).parents[1] / "data" / "workflows"
_EXAMPLES = (".png", ".wav")


@functools.cache
def built_in_workflows() -> Mapping[str, Workflow]:
    contents = {path.stem: path.read_bytes() for path in _FOLDER.glob("*.json")}
    return workflows.bundled({**_read("bundled"), "verified": _read("verified")}, contents)


def workflow_rows() -> Mapping[str, Mapping[str, Any]]:
    """Return the rows of `bundled.toml` by model name."""
    return {f"space:{slug}": row for slug, row in _read("bundled")["spaces"].items()}


def node_classes() -> Registry:
    classes: Registry = import_string.deferred("sixfold.engines.workflow_nodes.registry:registry")()
    return classes


def comfyui_address(settings: Settings) -> ComfyAddress:
    """Return the address of the operator's ComfyUI server, either configured or found on a probed host."""
    hosts = ProbeHosts(settings.probe_hosts, probe=settings.probe)
    return ComfyAddress(settings.comfyui_servers, hosts, frozenset({settings.port, settings.comfyui_port}))


def comfyui(settings: Settings, clients: HttpClients, address: ComfyAddress) -> ComfyWorkflows | None:
    """Return the client that runs whole workflows on ComfyUI, or None if that is not allowed."""
    return ComfyWorkflows(clients.upstream, address) if settings.graphs_go_to_comfyui else None


def comfyui_urls(settings: Settings) -> tuple[str, ...]:
    """Return the URLs of the settings and of the operator's entries; raises `InvalidSetting`."""
    rows: Mapping[str, Any] = settings.tables.get(entries.COMFYUI, {})
    urls = [str(row.get("url", "")) if isinstance(row, dict) else "" for row in rows.values()]
    for url in urls:
        if not _ORIGIN.fullmatch(url):
            shown = setting_values.redacted(url)
            raise InvalidSetting(f"a ComfyUI server is an origin such as http://gpu-box:8188 (got {shown})")
    return tuple(dict.fromkeys((*settings.comfyui_servers, *urls)))


async def probe_comfyui(client: httpx.AsyncClient, url: str) -> ServerProbe:
    """Return the node classes of a ComfyUI server, or the problem in one sentence."""
    if not _ORIGIN.fullmatch(url):
        return ServerProbe(problem="The address is an origin such as http://gpu-box:8188")
    server = ComfyServer(client, url, _PROBE_LIMITS)
    try:
        await server.stats()  # fails if another kind of server responds
        registry = await asyncio.to_thread(object_info.read, await server.object_info())
    except ComfyError as error:
        return ServerProbe(problem=str(error))
    return ServerProbe(tuple(sorted(spec.class_type for spec in registry)))


def build(
    settings: Settings,
    database: Database,
    media: MediaService,
    signer: Signer,
    predictions: PredictionService,
    comfyui: ComfyWorkflows | None,
) -> GraphService:
    """Build the workflow service; ComfyUI runs the workflows with classes that only it provides."""
    examples = {path.name: path for path in _FOLDER.iterdir() if path.suffix in _EXAMPLES}
    runtime = GraphRuntime(
        node_classes,
        packer=import_string.deferred("sixfold.engines.workflow_nodes.serialization:NodeValuePacker"),
        images=ImageCodecs(
            viewed=import_string.deferred("sixfold.engines.workflow_nodes.preview:render"),
            viewed_bytes=import_string.deferred("sixfold.engines.workflow_nodes.preview:render_memory"),
            masked=import_string.deferred("sixfold.engines.workflow_nodes.mask_upload:apply_mask"),
            masked_bytes=import_string.deferred("sixfold.engines.workflow_nodes.mask_upload:mask_memory"),
        ),
        unlock=UNLOCK if settings.graphs_go_to_comfyui else PUBLIC,
        limits=GraphLimits(settings.graph_nodes, settings.graph_values, settings.json_body_bytes),
    )
    service = GraphService(
        runtime, built_in_workflows(), GraphFiles(database, media, examples, signer), predictions, comfyui
    )
    predictions.check, predictions.appraisers[CHILDREN] = service.checked, service.price
    predictions.prepare, predictions.named_files = service.prepare, service.named_files
    return service


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text("utf-8"))
