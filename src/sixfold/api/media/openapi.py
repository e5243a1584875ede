"""The OpenAPI document of the Media API, generated from its endpoints and the inputs of their models."""

from __future__ import annotations

from typing import Any, get_type_hints

from sixfold.api.media import errors, gallery_openapi, serializers
from sixfold.api.media.endpoints import ENDPOINTS, MediaEndpoint
from sixfold.api.media.jobs import PATHS
from sixfold.core.catalog.models import Catalog
from sixfold.web import openapi
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec

KEY: Node = {"type": "string", "description": "The key; a bearer header is as good"}
_MODE: Node = {
    "type": "string",
    "enum": ["inline", "polling"],
    "description": "polling answers at once with a job",
}


def document(catalog: Catalog) -> OpenApiDocument:
    """Return the document: images, videos, jobs and the gallery."""
    making = {
        f"POST {path}": _making(endpoint, catalog, path) for endpoint in ENDPOINTS for path in endpoint.paths
    }
    status = openapi.response("The status of the job", serializers.JobSchema)
    summaries = {
        "get": "Get the status of a job",
        "post": "Get the status of a job",
        "delete": "Cancel a job",
    }
    jobs = {
        f"{method.upper()} {path}": OperationSpec(
            summary, {200: status}, (404, 503), operation_id=f"{prefix}_status"
        )
        for method, summary in summaries.items()
        for path, prefix in zip(PATHS, (method, f"{method}_alt"), strict=True)
    }
    return OpenApiDocument(
        "Sixfold Media API",
        "1.0.0",
        "Images and videos, with the key in the body. A failed request is never charged.",
        {**making, **jobs, **gallery_openapi.operations(KEY)},
        errors.MediaErrorSchema,
    )


def _making(endpoint: MediaEndpoint, catalog: Catalog, path: str) -> OperationSpec:
    result: Any = get_type_hints(endpoint.present)["return"]
    responses = {202: openapi.response("Queued", serializers.QueuedJobSchema)}
    if not endpoint.queued:
        responses[200] = openapi.result("The result", result)
    if endpoint.failure is errors.Ra1Failed:
        responses[502] = openapi.response(openapi.TEXTS[502], errors.Ra1FailureSchema)
    return OperationSpec(
        endpoint.summary,
        responses,
        (400, 402, 404, 409, 429, endpoint.failure.status, 503),
        openapi.object_of(catalog[endpoint.model].inputs, {"api_key": KEY, "response_mode": _MODE}),
        (openapi.IDEMPOTENCY,),
        path.removeprefix("/api/").strip("/").replace("-", "_").replace("/", "_"),
        keyless=True,
    )
