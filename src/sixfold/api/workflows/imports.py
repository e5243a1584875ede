"""Import of workflows from JSON in either format or from images; validation and comparison."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.workflows.workflows_list import KIND, WorkflowList
from sixfold.core.clock import rfc3339
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import now
from sixfold.core.humanize import count
from sixfold.core.input_limits import json_limits
from sixfold.core.provenance.formats import media_types
from sixfold.core.workflows import diff, image_metadata, input_inference, model_files, slices, workflows
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.editor_format.to_api import ConvertedGraph
from sixfold.core.workflows.limits import GraphLimits
from sixfold.core.workflows.nodes import Graph
from sixfold.core.workflows.validate import ValidationResult
from sixfold.core.workflows.workflows import PREFIX, Workflow
from sixfold.web import bodies, multipart, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.services import ServiceHandlers, WebServices

_MAX_NAME = 80
_EXAMPLE = (
    "send a workflow in the API format of ComfyUI, such as "
    '{"1": {"class_type": "SaveImage", "inputs": {}}}, or in the format of its editor'
)
_OUTPUTS = {"IMAGE": "image", "AUDIO": "audio", "VIDEO": "video"}
# The kind of a workflow by the kind of its output.
_KINDS = {"image": "image", "video": "video", "audio": "sfx", "model3d": "3d", "json": "api"}
_parse_graph = functools.partial(bodies.parse_object, limits=json_limits.GRAPH)


class ImportedDocument(msgspec.Struct, frozen=True):
    """An uploaded workflow: its document, its original bytes and its name."""

    document: Mapping[str, Any]
    content: bytes
    content_type: str
    name: str


class WorkflowImportRoutes(ServiceHandlers):
    """Imports and validates workflows."""

    def __init__(self, services: WebServices, workflow_list: WorkflowList) -> None:
        super().__init__(services)
        self._workshop = services.workflows
        self._workflow_list = workflow_list

    async def take(self, request: Request) -> Response:
        """Import a workflow into the account."""
        principal = await self._enter(request)
        principal.require_all_models()
        raw = await request.body()

        async def work(_idempotency_id: str | None) -> Response:
            await self._workshop.document_memory.reserve(len(raw))
            imported = await _read_request(request, raw, self._workshop.limits)
            space = await self._import(principal.account_id, imported)
            await asyncio.sleep(0)
            return responses.json({**self._workflow_list.record(space), "success": True}, 201)

        return await self._services.idempotency.run(
            request, IdempotentRequest(principal.replays, raw, responses.error_response), work
        )

    async def import_document(self, account_id: str, content: bytes, name: str) -> Workflow:
        """Import the workflow in a file into the account; raises `BadRequest`."""
        await self._workshop.document_memory.reserve(len(content))
        return await self._import(account_id, await _read_file(content, name, self._workshop.limits))

    async def validate(self, request: Request) -> Response:
        """Return every error of a workflow, and its price."""
        account_id = (await self._enter(request)).account_id
        body = await self._parse(request)
        if not isinstance(body.get("workflow"), dict):
            state = "is required" if body.get("workflow") is None else "must be an object"
            raise errors.InvalidInput.of("workflow", f"workflow {state}: {_EXAMPLE}")
        converted = await self._workshop.convert(body["workflow"], any_nodes=True)
        strict = body.get("strict_models") is True
        await self._workshop.refresh_remote(converted.graph, account_id)
        validation = await self._workshop.validate(converted.graph, strict_models=strict, all_nodes=True)
        if validation.valid:
            await self._record_validation(account_id, converted.graph)
        return responses.json(
            {
                "valid": validation.valid,
                "errors": validation.errors,
                "missing_classes": sorted(filter(None, validation.missing_classes)),
                "missing_models": [dict(missing_model) for missing_model in validation.missing_models],
                "estimate": await self._estimate(validation, account_id),
            }
        )

    async def diff(self, request: Request) -> Response:
        """Return the difference between two workflows."""
        await self._enter(request)
        body = await self._parse(request)
        a, b = [(await self._workshop.convert(_document(body, name))).graph for name in ("a", "b")]
        difference = await slices.run(diff.compare_steps(a, b))
        return responses.json(difference.record)

    async def _parse(self, request: Request) -> dict[str, Any]:
        raw = await request.body()
        await self._workshop.document_memory.reserve(len(raw))
        return await bodies.parse(_parse_graph, raw)

    async def _estimate(self, validation: ValidationResult, account_id: str) -> dict[str, Any] | None:
        if not validation.valid:
            return None
        try:
            self._workshop.require_runnable(validation)
            return (await self._workshop.estimate_cost(validation, account_id)).record
        except errors.SixfoldError as error:
            return {"price_usd": None, "vram_gb": None, "orders": [], "unavailable": error.message}

    async def _import(self, account_id: str, imported: ImportedDocument) -> Workflow:
        converted = await self._workshop.convert(imported.document)
        if not converted.graph:
            raise errors.BadRequest("The workflow must contain at least one node that can run")
        return await self.store(account_id, await self._build_workflow(account_id, imported, converted))

    async def store(self, account_id: str, space: Workflow) -> Workflow:
        """Store a workflow in the account, and return the stored one."""
        media = self._services.media
        source = await media.store_unnamed(space.content, space.content_type, account_id)
        name = await self._services.database.write(media.name_blob(account_id, source))
        metadata = {
            "kind": space.kind,
            "media": name,
            "models": list(space.models),
            "source": dict(space.source),
            "verification": dict(space.verification),
            "custom_nodes": list(space.custom_nodes),
        }
        document = {"models": {space.model: space.row(account_id)}, "space": metadata}
        await self._services.predictions.custom_models.put(account_id, KIND, space.model, document)
        return space

    async def _build_workflow(
        self, account_id: str, imported: ImportedDocument, converted: ConvertedGraph
    ) -> Workflow:
        await self._workshop.refresh_remote(converted.graph)
        registry, graph = self._workshop.classes, converted.graph
        validation = await self._workshop.validate(graph)
        inputs = await slices.run(input_inference.infer_steps(graph, registry))
        await asyncio.sleep(0)
        models = model_files.find(graph, registry, converted.models)
        await asyncio.sleep(0)
        output_kind = self._output_kind(graph)
        return Workflow(
            slug=await self.free_slug(account_id, workflows.slug_of(imported.name) or "workflow"),
            name=imported.name,
            description=f"Imported: {len(graph)} node{'s' * (len(graph) != 1)}",
            kind=_KINDS[output_kind],
            output_kind=output_kind,
            graph=graph,
            content=imported.content,
            inputs=inputs or None,
            content_type=imported.content_type,
            models=tuple(file for model in models if (file := self._file(model))["sources"]),
            source={"label": "imported", "url": "", "license": "", "adapted": False},
            verification=_unverified(validation),
            custom_nodes=tuple(f"/object_info/{each}" for each in self._custom(graph)),
        )

    async def _record_validation(self, account_id: str, graph: Graph) -> None:
        """Mark the account's unverified workflows with this valid graph as validated."""
        models = self._services.predictions.custom_models
        async for custom_model in models.each(account_id, KIND):
            metadata = mapping(custom_model.document.get("space"))
            row = mapping(mapping(custom_model.document["models"]).get(custom_model.name))
            status = mapping(metadata.get("verification")).get("status")
            if status != "unverified" or mapping(row.get("fixed")).get("graph") != graph:
                continue
            verification = {
                "status": "api-validated",
                "checkedAt": (rfc3339(await self._services.database.read(now())) or "")[:10],
                "runtime": "sixfold",
                "evidence": f"{count(len(graph), 'node')} checked against the schemas of their classes",
            }
            document = {**custom_model.document, "space": {**metadata, "verification": verification}}
            # A concurrent change is not overwritten.
            with contextlib.suppress(errors.PreconditionFailed):
                await models.put(account_id, KIND, custom_model.name, document, expected=custom_model.version)

    def _file(self, each: model_files.ModelFileRef) -> dict[str, Any]:
        """Return the entry of a model file; one without a known source has empty `sources`."""
        rows = (row for space in self._workshop.spaces.values() for row in space.models)
        known = mapping(next((row for row in rows if row["file"] == each.file), None))
        is_url = each.file.startswith("https://")
        file = each.file.partition("?")[0].rpartition("/")[2] if is_url else each.file
        return {
            "file": each.file,
            "kind": each.kind,
            "name": file.rpartition(".")[0] or file or each.file,
            "sizeGb": 0,
            "vramGb": 0,
            **known,
            "sources": list(each.sources or known.get("sources") or ([each.file] if is_url else ())),
        }

    def _custom(self, graph: Graph) -> list[str]:
        names = sorted({str(node["class_type"]) for node in graph.values()})
        return [
            name for name in names if name.startswith(workflows.OWN) or name not in self._workshop.registry
        ]

    def _output_kind(self, graph: Graph) -> str:
        """Return the kind of a graph's output, from its output nodes."""
        for node in graph.values():
            spec = self._workshop.classes.get(str(node["class_type"]))
            if spec is not None and spec.output_node:
                if "3D" in spec.class_type:
                    return "model3d"
                for descriptor in spec.inputs:
                    if descriptor.type in _OUTPUTS:
                        return "video" if "Animated" in spec.class_type else _OUTPUTS[descriptor.type]
        return "json"

    async def free_slug(self, account_id: str, slug: str) -> str:
        """Return the slug if it is not in use, or else the slug with a number."""
        names = await self._services.predictions.custom_models.names(account_id, KIND)
        taken_slugs = {name.removeprefix(PREFIX) for name in names} | set(self._workshop.spaces)
        numbered = (slug if at == 1 else f"{slug}-{at}" for at in range(1, len(taken_slugs) + 2))
        return next(candidate for candidate in numbered if candidate not in taken_slugs)


def _unverified(validation: ValidationResult) -> dict[str, Any]:
    evidence = "; ".join(str(error["message"]) for error in validation.errors)[:500]
    return {**workflows.unverified(), "evidence": evidence}


def _document(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    document = mapping(body.get(name))
    if not document:
        raise errors.InvalidInput([errors.Problem(name, f"{name} must be a workflow document", "missing")])
    return document


async def _read_request(request: Request, raw: bytes, limits: GraphLimits) -> ImportedDocument:
    """Read a multipart `file`, `{"workflow","name"?}`, or the file itself; raises `BadRequest`."""
    name, file = request.query_params.get("name", ""), raw
    if bodies.media_type(request) == "multipart/form-data":
        name, file = await _form(request, name)
    elif raw.lstrip()[:1] == b"{":
        limits.check_document(raw)
        body = await bodies.parse(_parse_graph, raw)
        if isinstance(body.get("workflow"), dict):
            document = mapping(body["workflow"])
            content = await asyncio.to_thread(responses.encode, document)
            workflow_name = parse_name(body["name"]) if body.get("name") else _name(name)
            return ImportedDocument(document, content, "application/json", workflow_name)
    return await _read_file(file, name, limits)


async def _read_file(file: bytes, name: str, limits: GraphLimits) -> ImportedDocument:
    kind = media_types.find(file)
    # Inflating a text chunk releases the GIL.
    document = await PARSER.run(image_metadata.read, file, limits)
    return ImportedDocument(document, file, kind.media_type if kind else "application/json", _name(name))


async def _form(request: Request, name: str) -> tuple[str, bytes]:
    async with multipart.form(request, max_files=1, max_fields=10) as form:
        file, name_field = form.get("file"), form.get("name")
        if file is None or isinstance(file, str):
            raise errors.BadRequest("The form must contain a part named file")
        data, stem = await file.read(), (file.filename or "").rpartition(".")[0]
    return (name_field if isinstance(name_field, str) and name_field else name or stem), data


def parse_name(value: Any) -> str:
    """Return the name of a workflow; raises `InvalidInput`."""
    if not isinstance(value, str):
        raise errors.InvalidInput.of("name", "name must be a string")
    if not value.strip():
        raise errors.InvalidInput.of("name", "name must not be empty")
    return _name(value)


def _name(text: str) -> str:
    return " ".join(text.split())[:_MAX_NAME] or "workflow"
