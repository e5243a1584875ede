"""`replay`: recreate a file from its manifest, on this machine and without charge."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import blake3
import msgspec

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.app import drivers as app_drivers
from sixfold.app import media as app_media
from sixfold.app import storage
from sixfold.cli import database_access, receipt
from sixfold.cli import inspect_file as origins
from sixfold.cli.inspect_file import FileProvenance
from sixfold.cli.replay import graphs
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core.catalog import timeline
from sixfold.core.catalog.engines import Task
from sixfold.core.catalog.inputs import MEDIA_TYPES
from sixfold.core.catalog.models import Catalog, EngineSpec, Model
from sixfold.core.failpoints import Failpoints
from sixfold.core.humanize import size
from sixfold.core.media.blob_keys import key_of
from sixfold.core.media.ports import BlobStore
from sixfold.core.provenance import c2pa_removal, embed
from sixfold.core.provenance import redaction as manifest_inputs
from sixfold.core.provenance.manifest import Manifest
from sixfold.core.workers import policy as worker_policy
from sixfold.core.workers.ports import RunCompleted, RunFailed, RunReports, RunStopped, WorkerLost
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.core.workflows import workflows
from sixfold.settings import Settings

_ALGORITHM = "blake3:"
_UNIDENTIFIED_INPUTS = "The file cannot be replayed: its manifest does not identify the content of each input"
_EDITED = "it was edited after it was generated"


class ReplayPlan(msgspec.Struct, frozen=True):
    """The run to repeat: the model, its engine, the engine's inputs and the names of its media inputs.

    `beside` contains the graph, if the request contained one.
    """

    model: Model
    engine: EngineSpec
    values: dict[str, Any]
    media: tuple[str, ...]
    beside: Mapping[str, Any] = {}


def replay(arguments: argparse.Namespace) -> int:
    """Run `replay`; return 1 if the bytes differ."""
    server_settings = database_access.settings_of(arguments)
    source = Path(arguments.file)
    origin = origins.read(source, server_settings.data_dir)
    plan = _plan(origin, server_settings)
    parents = {_digest(Path(name).read_bytes()): Path(name) for name in arguments.parent}
    with tempfile.TemporaryDirectory(prefix="sixfold-replay-") as scratch:
        data = asyncio.run(_recreate(origin, plan, server_settings, parents, Path(scratch)))
    # C2PA signatures are removed, since their random part and time differ in each run.
    identical = data == c2pa_removal.remove(origin.data)
    target = None
    if not arguments.check:
        target = Path(arguments.output) if arguments.output else source.with_stem(f"{source.stem}-replay")
        target.write_bytes(data)
    if arguments.json:
        put_json(
            {
                "file": str(source),
                "identical": identical,
                "output": None if target is None else str(target),
                "bytes": len(data),
                "model": origin.manifest.model,
                "engine": origin.manifest.engine,
            }
        )
    else:
        reason = _EDITED if plan.engine.kind != workflows.ENGINE else f"{_EDITED}, or {graphs.OTHERWISE}"
        _print_result(source, target, len(data), "" if identical else reason)
    return 0 if identical else 1


def _print_result(source: Path, target: Path | None, count: int, reason: str) -> None:
    paint = TerminalStyle()
    if target is not None:
        paint.line(f"  {paint.bold(str(target))}  {paint.dim(size(count))}")
    if not reason:
        paint.line(f"  {paint.accent('●')} identical to {source}")
    else:
        sys.stderr.write(f"sixfold: {source} has different bytes: {reason}.\n")


# -- what to run -----------------------------------------------------------------------------------


def _plan(origin: FileProvenance, server_settings: Settings) -> ReplayPlan:
    """Return the run that generated the file; raises `CommandError` if it cannot be repeated here."""
    manifest = origin.manifest
    if origin.signature == "invalid":
        raise CommandError("The file's manifest was changed after it was signed and cannot be trusted")
    catalog = app_catalog.catalog(server_settings, app_catalog.price_table(server_settings))
    engine = _engine(catalog, manifest)
    if engine.kind == workflows.ENGINE and (
        manifest.model == workflows.PROMPT or manifest.model not in catalog
    ):
        return _graph_plan(origin, catalog[workflows.PROMPT], engine, server_settings)
    if manifest.model not in catalog:
        raise CommandError(
            f"This version lacks the model {manifest.model}: the file was created by {manifest.software}"
        )
    model = catalog[manifest.model]
    is_graph = engine.kind == workflows.ENGINE
    media = tuple(item.name for item in model.inputs if item.type in MEDIA_TYPES)
    if is_graph:
        media = graphs.file_inputs(model)
    clips = _clips(model, manifest.inputs)
    beside = {f"{project}.{name}.url" for project in model.projects for name in clips}
    replaced = manifest_inputs.replaced(manifest.inputs)
    withheld = [name for name in replaced if name.split(".")[0] not in media and name not in beside]
    if withheld:
        raise CommandError(
            "The file cannot be replayed: its manifest has only digests of inputs that are too long for it: "
            f"{', '.join(withheld)}"
        )
    plain = {name: value for name, value in manifest.inputs.items() if name not in media}
    values = plain if is_graph else model.for_engine(plain)
    if manifest.seed is not None:
        values["seed"] = manifest.seed
    for name in model.projects & values.keys():
        values[name] = timeline.without_urls(values[name])
    present = (*(name for name in media if manifest.inputs.get(name) not in (None, "")), *clips)
    if len(present) != len(manifest.parents):
        raise CommandError(_UNIDENTIFIED_INPUTS)
    return ReplayPlan(model, engine, values, present)


def _engine(catalog: Catalog, manifest: Manifest) -> EngineSpec:
    """Return the engine that generated the file; raises `CommandError` if its output would differ here."""
    engine = catalog.engines().get(manifest.engine)
    if engine is None:
        raise CommandError(
            f"This version lacks the engine {manifest.engine}: the file was created by {manifest.software}"
        )
    if engine.kind not in ("embedded", workflows.ENGINE):
        raise CommandError(f"{engine.name} is not an embedded engine: its output is not reproducible")
    if engine.version != manifest.engine_version:
        raise CommandError(
            f"The file was created by {engine.name} {manifest.engine_version}, but this is {engine.version}: "
            f"replay it with {manifest.software}"
        )
    return engine


def _graph_plan(
    origin: FileProvenance, model: Model, engine: EngineSpec, server_settings: Settings
) -> ReplayPlan:
    """Return the run of a graph, which is read from the file or from the data folder of its run."""
    beside, names = graphs.carried(origin, server_settings)
    # The order of inputs is not recorded, so only one input can be identified.
    if len(names) != len(origin.manifest.parents) or len(names) > 1:
        raise CommandError(_UNIDENTIFIED_INPUTS)
    return ReplayPlan(model, engine, {}, names, beside)


def _clips(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the URLs of the clips in a timeline project, by their input names."""
    return {
        name: clip["url"]
        for project in model.projects & inputs.keys()
        for name, clip in timeline.clips_with_file(inputs[project])
    }


# -- inputs ----------------------------------------------------------------------------------------


async def _parents(
    origin: FileProvenance,
    plan: ReplayPlan,
    server_settings: Settings,
    parents: Mapping[str, Path],
    scratch: Path,
) -> dict[str, Path]:
    store = storage.open_blobs(server_settings)
    files: dict[str, Path] = {}
    urls = {**origin.manifest.inputs, **_clips(plan.model, origin.manifest.inputs)}
    for name, digest in zip(plan.media, origin.manifest.parents, strict=True):
        path = parents.get(digest) or await _stored(store, digest)
        if path is None:
            path = await _fetched(urls.get(name), digest, server_settings, scratch / name)
        if path is None:
            raise CommandError(
                f"Input {name} ({digest[:23]}…) is neither in {server_settings.data_dir} nor at its URL: "
                "pass the file with --parent"
            )
        files[name] = path
    return files


async def _stored(store: BlobStore, digest: str) -> Path | None:
    name = digest.removeprefix(_ALGORITHM)
    with contextlib.suppress(KeyError, ValueError):
        return await store.local_path(key_of(name))
    return None


async def _fetched(url: Any, digest: str, server_settings: Settings, path: Path) -> Path | None:
    """Download an input; return None if its content has changed."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return None
    fetcher = app_media.open_fetcher(server_settings)
    try:
        fetched = await fetcher.fetch_bytes(
            url, max_bytes=server_settings.fetch_image_bytes, timeout_seconds=server_settings.fetch_seconds
        )
    except errors.SixfoldError:
        return None
    finally:
        await fetcher.aclose()
    if _digest(fetched.data) != digest:
        return None
    await asyncio.to_thread(path.write_bytes, fetched.data)
    return path


def _digest(data: bytes) -> str:
    return _ALGORITHM + blake3.blake3(data).hexdigest()


# -- the run ---------------------------------------------------------------------------------------


async def _recreate(
    origin: FileProvenance,
    plan: ReplayPlan,
    server_settings: Settings,
    parents: Mapping[str, Path],
    scratch: Path,
) -> bytes:
    """Run the engine as a server does, and return the output with the original manifest embedded."""
    files = await _parents(origin, plan, server_settings, parents, scratch)
    if plan.engine.kind == workflows.ENGINE:
        work = graphs.GraphReplay(plan.model.name, plan.values, plan.beside)
        return await graphs.make(origin, work, files, server_settings, scratch)
    task = Task(origin.manifest.prediction_id, plan.model.name, plan.values, files)
    driver = app_drivers.local_driver(server_settings, Failpoints(), app_catalog.templates())
    limits = msgspec.structs.replace(
        app_drivers.policy(server_settings, app_catalog.templates()), scratch=scratch / "worker"
    )
    spec = worker_policy.worker_spec(plan.engine, limits)
    bar = receipt.ReceiptBar(TerminalStyle(sys.stderr))
    try:
        worker = await driver.start(spec)
        reports = RunReports(
            lambda fraction: bar.show({"status": "running", "progress": fraction}, 0), _ignore
        )
        outcome = await worker.run(task, reports)
        await worker.stop()
    except StartFailed as failure:
        raise CommandError(f"{plan.engine.name} cannot run here: {failure}") from failure
    finally:
        bar.clear()
        await driver.close()
    match outcome:
        case RunCompleted():
            pass
        case RunFailed():
            raise CommandError(f"{plan.engine.name} failed: {outcome.message}")
        case RunStopped() | WorkerLost():
            raise CommandError(f"{plan.engine.name} did not finish")
    index = origin.manifest.index
    if index >= len(outcome.files):
        raise CommandError(
            f"The run returned {len(outcome.files)} files, but the original is file number {index + 1}"
        )
    output = outcome.files[index]
    return embed.embed(output.path.read_bytes(), output.content_type, origin.text)


def _ignore(_line: str) -> None:
    """Discard a log line."""
