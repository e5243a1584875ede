"""Recreation of a graph's output in a temporary server with embedded engines only."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sixfold import errors
from sixfold.app import bootstrap
from sixfold.app import catalog as app_catalog
from sixfold.app import graphs as app_graphs
from sixfold.app.bootstrap import Application
from sixfold.cli import database_access
from sixfold.cli.inspect_file import FileProvenance
from sixfold.cli.terminal import CommandError
from sixfold.core import ids
from sixfold.core.accounts import accounts
from sixfold.core.catalog.models import Model
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.core.provenance import embed
from sixfold.core.workflows import image_metadata, workflows
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.storage import SENT_FILE
from sixfold.settings import PROVIDER_KEYS, Settings

_KINDS: Final = frozenset({"embedded", workflows.ENGINE})
_POLL_SECONDS = 60.0
OTHERWISE: Final = "its nodes used other engines, another version of the graph or a random seed"


class GraphReplay(msgspec.Struct, frozen=True):
    """The model of a graph, its validated inputs, and the graph in `extras` if the file contains it."""

    model: str
    values: Mapping[str, Any]
    extras: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


def carried(origin: FileProvenance, server_settings: Settings) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the graph that generated a file and the names of its media inputs; raises `CommandError`.

    Images contain their graph; for audio, video and 3D models it is read from the data folder.
    """
    beside = _in_file(origin.data) or _in_store(server_settings, origin.manifest.prediction_id)
    if beside is None:
        raise CommandError(
            "The file does not contain its graph, this version has no workflow of its name, "
            f"and {server_settings.data_dir} has no record of the run"
        )
    nodes = beside["graph"].values()
    texts = [value for node in nodes for value in mapping(mapping(node).get("inputs")).values()]
    names = [
        text.removeprefix(SENT_FILE) for text in texts if isinstance(text, str) and text.startswith(SENT_FILE)
    ]
    return beside, tuple(dict.fromkeys(names))


def file_inputs(model: Model) -> tuple[str, ...]:
    """Return the inputs of a built-in workflow that name a file, in the order of a run's input files."""
    classes = app_graphs.node_classes()
    graph, rows = model.fixed["graph"], model.fixed["api_inputs"]
    return tuple(
        each.name for each in workflows.api_inputs(rows) if workflows.file_kind(graph, each, classes)
    )


def _in_file(data: bytes) -> dict[str, Any] | None:
    try:
        metadata = image_metadata.extract(data)
    except errors.BadRequest:
        return None
    if "prompt" not in metadata:
        return None
    extra_data = {"extra_pnginfo": {"workflow": metadata["workflow"]}} if "workflow" in metadata else {}
    return {"graph": metadata["prompt"], "extra_data": extra_data, "targets": None}


def _in_store(server_settings: Settings, prediction_id: str) -> dict[str, Any] | None:
    """Return the graph from the database, or None if the database or the prediction does not exist."""
    try:
        task = database_access.read(server_settings, predictions.get_any(prediction_id)).task
    except (CommandError, errors.NotFound):
        return None
    graph = workflows.ordered(task.inputs, task.files)
    return {"graph": graph, "extra_data": {}, "targets": task.inputs.get("targets")}


async def make(
    origin: FileProvenance,
    work: GraphReplay,
    files: Mapping[str, Path],
    server_settings: Settings,
    scratch: Path,
) -> bytes:
    """Run the graph and return the matching output with the original manifest embedded."""
    try:
        application = bootstrap.build(_isolated(server_settings, scratch / "server"), _embedded())
        async with bootstrap.running(application):
            prediction = await _run(application, work, files)
            file = _counterpart(origin, prediction)
            data = await application.blobs.get(file.blob)
    except errors.SixfoldError as error:
        raise CommandError(f"The file's graph cannot run on embedded engines: {error.message}") from error
    return embed.embed(data, file.content_type, origin.text)


def _isolated(server_settings: Settings, folder: Path) -> Settings:
    """Return the settings without the data, servers and keys of the installation."""
    folder.mkdir()
    return dataclasses.replace(
        server_settings,
        **dict.fromkeys((*PROVIDER_KEYS, "database_url", "blob_url", "upload_url", "comfyui_url"), ""),
        data_dir=folder,
        c2pa_certificate=None,
        c2pa_key=None,
        probe=False,
        previews="allow",
        tables={},
    )


def _embedded() -> dict[str, Any]:
    """Return the bundled catalog with only the engines whose output is reproducible."""
    document = app_catalog.models_document()
    engines = {name: row for name, row in document["engines"].items() if row["kind"] in _KINDS}
    models = {
        name: {**row, "engines": [engine for engine in row["engines"] if engine in engines]}
        for name, row in document["models"].items()
    }
    return {"engines": engines, "models": models}


async def _run(application: Application, work: GraphReplay, files: Mapping[str, Path]) -> Prediction:
    account = await application.database.write(accounts.create("replay@localhost.invalid"))
    sources = {
        name: await application.media.store_unnamed(
            await asyncio.to_thread(path.read_bytes), "application/octet-stream"
        )
        for name, path in files.items()
    }
    if "graph" in work.extras:
        validation = application.workflows.check(work.extras["graph"])
        if not validation.valid:
            application.workflows.raise_errors(validation)
        application.workflows.require_runnable(validation)
        application.workflows.estimate(validation, charged=False)
    request = PredictionRequest(
        principal=account.owner,
        model=work.model,
        internal="graph" in work.extras,
        inputs={**work.values, **{name: source.blob for name, source in sources.items()}},
        face="cli",
        request_id=ids.new("req"),
        charged=False,
        extras=work.extras,
        sources=sources,
    )
    prediction = await application.predictions.submit(request)
    while not prediction.is_terminal:
        prediction = await application.predictions.wait(prediction, _POLL_SECONDS)
    return prediction


def _counterpart(origin: FileProvenance, prediction: Prediction) -> OutputFile:
    if prediction.state is not PredictionState.SUCCEEDED or prediction.output is None:
        raise CommandError(f"The file's graph failed: {prediction.error or prediction.state}")
    if prediction.quality != origin.manifest.quality:
        raise CommandError(
            f"The file has {origin.manifest.quality} quality, but embedded engines return "
            f"{prediction.quality} quality: the output of other kinds of engines cannot be reproduced"
        )
    files, index = prediction.output.files, origin.manifest.index
    if index >= len(files):
        raise CommandError(
            f"The run returned {len(files)} files, but the original is file number {index + 1}"
        )
    return files[index]
