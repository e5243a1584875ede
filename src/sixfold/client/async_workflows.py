"""Workflows, for the asynchronous client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold.client import requests
from sixfold.client.async_resources import AsyncPredictions
from sixfold.client.async_transport import AsyncTransport
from sixfold.client.errors import PredictionFailed
from sixfold.client.requests import ApiCall, FileInput
from sixfold.client.types.hosting import Prediction
from sixfold.client.types.workflows import OneWorkflow, ValidatedGraph, Workflows

_PATH = "/api/graph/spaces"


class AsyncWorkflows:
    """Graphs of nodes with typed inputs: `client.workflows`."""

    def __init__(self, transport: AsyncTransport, predictions: AsyncPredictions) -> None:
        self._transport = transport
        self._predictions = predictions

    async def list(self, limit: int = 100, cursor: str | None = None) -> Workflows:
        """Return the built-in workflows and a page of the account's workflows."""
        return await self._transport.request(ApiCall("GET", _PATH, {"limit": limit, "cursor": cursor}))

    async def get(self, slug: str) -> OneWorkflow:
        """Return a workflow with its inputs."""
        return await self._transport.request(ApiCall("GET", _one(slug)))

    async def run(
        self,
        slug: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float = 600.0,
        idempotency_key: str | None = None,
    ) -> Prediction:
        """Run a workflow and return the prediction when it has succeeded.

        Inputs that are paths, bytes or open files are uploaded first. Raises `PredictionFailed` if it ends
        in another state, and `WaitExpired` after `timeout_seconds`.
        """
        document = {"input": await self._transport.prepare(inputs), "wait": 0}
        key = idempotency_key or requests.new_idempotency_key()
        call = ApiCall("POST", f"{_one(slug)}/run", document=document, idempotency_key=key)
        started = await self._transport.request(call)
        prediction = await self._predictions.wait(started["id"], timeout_seconds)
        if prediction["status"] != "succeeded":
            raise PredictionFailed(prediction)
        return prediction

    async def create(self, file: FileInput, name: str | None = None) -> OneWorkflow:
        """Import a workflow from a document of ComfyUI or from an image that contains one."""
        part = requests.file_part(file)
        fields = {"name": name} if name else {}
        key = requests.new_idempotency_key()
        try:
            return await self._transport.request(
                ApiCall("POST", _PATH, file=part, fields=fields, idempotency_key=key)
            )
        finally:
            if isinstance(file, Path) and not isinstance(part[1], bytes):
                part[1].close()

    async def delete(self, slug: str) -> None:
        """Delete one of the account's workflows."""
        await self._transport.request(ApiCall("DELETE", _one(slug)))

    async def validate(self, graph: Mapping[str, Any]) -> ValidatedGraph:
        """Return the errors of a graph, or its price if it is valid."""
        return await self._transport.request(
            ApiCall("POST", "/api/graph/validate", document={"workflow": graph})
        )


def _one(slug: str) -> str:
    return requests.path(f"{_PATH}/{{slug}}", slug=slug)
