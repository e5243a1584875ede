"""Reading the manifest of a dropped file to fill in a form, and repeating a prediction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import rights
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.concurrency import loaded_objects
from sixfold.core.predictions import lineage
from sixfold.core.predictions.lineage import RelatedRun
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.provenance import c2pa_removal, embed, redaction
from sixfold.core.provenance.formats import edits
from sixfold.core.provenance.manifest import NotAManifest
from sixfold.core.provenance.signing import SignedManifest
from sixfold.core.temporary_files import temporary_path
from sixfold.core.workflows import image_metadata
from sixfold.ui import forms
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.web import requests, responses, uploads
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

# Maximum size of a file whose metadata is read.
_MAX_BYTES = 256 * 2**20
# The files of repeated runs that the page of a run compares, in total.
_MAX_COMPARED_BYTES = 48 * 2**20
_FORM_BYTES = 4096
_SEED, _MAX_SEED = "seed", 2**31 - 1
_NO_MANIFEST = (
    "The file does not contain a manifest: it was not created by Sixfold, or its metadata was removed"
)


class ProvenancePages:
    """Reads manifests of files and repeats predictions."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._folder = services.settings.data_dir / "tmp"

    async def read(self, request: Request, user: PageUser) -> Response:
        """Return the model and inputs in a file's manifest, or state that the file contains a workflow."""
        with_graph = "workflows" in self._services.settings.enabled_apis
        async with temporary_path(self._folder) as path:
            await uploads.receive(request, path)
            text, has_graph = await asyncio.to_thread(_metadata, path, with_graph=with_graph)
        if text is not None:
            try:
                return responses.json(await self._describe(self._services.signer.read(text), user))
            except NotAManifest as error:
                raise errors.BadRequest(_NO_MANIFEST) from error
        if has_graph:
            return responses.json({"kind": "graph"})
        raise errors.BadRequest(_NO_MANIFEST)

    async def _describe(self, signed: SignedManifest, user: PageUser) -> dict[str, Any]:
        manifest = signed.manifest
        model = await self._services.predictions.find(manifest.model, user.account_id)
        inputs = {name: value for name, value in manifest.inputs.items() if model.takes(name)}
        if manifest.seed is not None and model.takes("seed"):
            inputs["seed"] = manifest.seed
        withheld = {name.partition(".")[0] for name in redaction.replaced(inputs)}
        prediction = await self._find_prediction(manifest.prediction_id, user) if signed.valid else None
        if prediction is not None:
            origin = self._services.settings.base_url
            stored = await self._services.database.read(lineage.reusable_inputs(prediction, origin))
            inputs = {**inputs, **stored}
            withheld -= stored.keys()
        return {
            "kind": "output",
            "model": model.name,
            "title": model.title,
            "inputs": {name: value for name, value in inputs.items() if name not in withheld},
            "withheld": sorted(withheld),
            "signature": "ours" if signed.valid else "foreign" if signed.intact else "broken",
            "made_by": f"{engine_name(manifest.engine)} {manifest.engine_version}, {manifest.quality}",
            "prediction": None if prediction is None else prediction.id,
        }

    async def _find_prediction(self, prediction_id: str, user: PageUser) -> Prediction | None:
        try:
            return await self._services.predictions.get(prediction_id, user.tenant)
        except errors.NotFound:
            return None

    async def replay(self, request: Request, user: PageUser) -> Response:
        """Run a prediction again with the same inputs and seed; the page states whether the outputs match."""
        prediction = await self._of_form(request, user)
        return await self._resubmit(request, user, prediction, {}, lineage.drawn_values(prediction))

    async def vary(self, request: Request, user: PageUser) -> Response:
        """Run a prediction again with the same inputs and a new seed; raises `BadRequest` without a seed."""
        prediction = await self._of_form(request, user)
        model = await self._services.predictions.find(prediction.model, user.account_id)
        seed = next((each for each in model.inputs if each.name == _SEED), None)
        if seed is None:
            raise errors.BadRequest(
                f"{prediction.model} does not use a seed, so a variation would be identical"
            )
        low, high = int(seed.min or 0), int(min(seed.max or _MAX_SEED, _MAX_SEED))
        inputs: dict[str, Any] = {_SEED: low + ids.draw(high - low + 1)}
        extras = lineage.drawn_values(prediction)
        return await self._resubmit(
            request, user, prediction, inputs, {name: extras[name] for name in extras if name != _SEED}
        )

    async def _of_form(self, request: Request, user: PageUser) -> Prediction:
        """Return the prediction that a form names after the CSRF check."""
        form = await forms.read(request)
        self._services.sessions.check_csrf(request, user.session, form.get("csrf"))
        return await self._services.predictions.get(
            requests.path_value(request, "prediction_id"), user.tenant
        )

    async def _resubmit(
        self,
        request: Request,
        user: PageUser,
        prediction: Prediction,
        inputs: dict[str, Any],
        extras: dict[str, Any],
    ) -> Response:
        origin = self._services.settings.base_url
        read = self._services.database.read
        repetition = PredictionRequest(
            principal=user.principal,
            model=prediction.model,
            inputs={**await read(lineage.reusable_inputs(prediction, origin)), **inputs},
            face="pages",
            request_id=requests.request_id(request),
            hardware=prediction.hardware,
            sources=await read(lineage.stored_inputs(prediction)),
            extras=extras,
        )
        repeated = await self._services.predictions.submit(repetition)
        return RedirectResponse(f"/predictions/{repeated.id}", 303)


def _metadata(path: Path, *, with_graph: bool) -> tuple[str | None, bool]:
    """Return a file's manifest, if any, or else whether it contains a workflow, without reading all of it."""
    with path.open("rb") as file, edits.mapped(file) as data:
        text = embed.extract(data)
        return text, text is None and with_graph and _has_graph(data)


def _has_graph(data: bytes) -> bool:
    """Return whether an image or JSON file contains a workflow."""
    try:
        return bool(image_metadata.read(data))
    except errors.SixfoldError:
        return False


async def compared(
    services: WebServices, original: Prediction, same: Sequence[tuple[RelatedRun, bool]]
) -> list[tuple[RelatedRun, bool | None]]:
    """Return repeated runs, and whether their outputs are equal or None if these are not compared.

    Outputs are not compared if they are withheld or too large.
    """
    remaining = _MAX_COMPARED_BYTES
    sizes: dict[str, int] = {}
    for other, is_same in same:
        outputs = (original.output, other.output)
        size = sum(file.size for output in outputs if output is not None for file in output.files)
        if not is_same and other.output is not None and size <= remaining:
            remaining -= size
            sizes[other.id] = size
    # The files of one repeated run at a time are in memory.
    await loaded_objects.reserve(max(sizes.values(), default=0), loaded_objects.DOCUMENT_COPIES)
    result: list[tuple[RelatedRun, bool | None]] = []
    for other, is_same in same:
        equal = await _has_same_output(services, original, other) if other.id in sizes else is_same or None
        result.append((other, equal))
    return result


async def _has_same_output(services: WebServices, original: Prediction, other: RelatedRun) -> bool:
    """Return whether two predictions have the same output, ignoring the manifests in the files."""
    if (
        original.output is None
        or other.output is None
        or len(original.output.files) != len(other.output.files)
    ):
        return False
    for first, second in zip(original.output.files, other.output.files, strict=True):
        kind = first.content_type
        data = [await services.blobs.get(file.blob) for file in (first, second)]
        contents = [await asyncio.to_thread(_without_manifests, each, kind) for each in data]
        if contents[0] != contents[1]:
            return False
    return bool(original.output.files) or original.output.data == other.output.data


def _without_manifests(data: bytes, content_type: str) -> bytes:
    """Return a file without its C2PA manifest, and with an empty manifest in Sixfold's format."""
    return embed.embed(c2pa_removal.remove(data), content_type, "{}")


def page_routes(services: WebServices, auth: PageAuth) -> tuple[RouteEntry, ...]:
    pages = ProvenancePages(services)
    replay, vary = auth.page(pages.replay), auth.page(pages.vary)
    return (
        RouteEntry("/predictions/{prediction_id}/replay", {"POST": replay}, _FORM_BYTES, access=rights.RUN),
        RouteEntry("/predictions/{prediction_id}/vary", {"POST": vary}, _FORM_BYTES, access=rights.RUN),
    )


def script_routes(services: WebServices, auth: PageAuth) -> tuple[RouteEntry, ...]:
    read = auth.script(ProvenancePages(services).read)
    return (
        RouteEntry(
            "/pages/origin",
            {"POST": read},
            min(_MAX_BYTES, services.settings.upload_body_bytes),
            access=rights.RUN,
        ),
    )
