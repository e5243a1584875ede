"""An asynchronous client for a Sixfold server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from sixfold.client import requests
from sixfold.client.async_memory import AsyncMemory
from sixfold.client.async_resources import AsyncAccount, AsyncMedia, AsyncPredictions, AsyncSessions
from sixfold.client.async_transport import AsyncTransport
from sixfold.client.async_workflows import AsyncWorkflows
from sixfold.client.errors import PredictionFailed
from sixfold.client.requests import ApiCall
from sixfold.client.types.hosting import Prediction, Templates


class AsyncClient(AsyncTransport):
    """An asynchronous client with one key; use it as a context manager, or close it.

    Without `api_key` it uses `SIXFOLD_API_KEY`. Failed requests are repeated up to `max_retries` times where
    the server allows it; requests that charge carry an `Idempotency-Key`, so they are charged only once.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str = requests.DEFAULT_URL,
        *,
        max_retries: int = 2,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(api_key, base_url, max_retries=max_retries, http_client=http_client)
        self.predictions = AsyncPredictions(self)
        self.sessions = AsyncSessions(self)
        self.media = AsyncMedia(self)
        self.workflows = AsyncWorkflows(self, self.predictions)
        self.memory = AsyncMemory(self)
        self.account = AsyncAccount(self)

    async def run(
        self,
        model: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float = 600.0,
        hardware: str | None = None,
        variant: str | None = None,
        idempotency_key: str | None = None,
    ) -> Prediction:
        """Run a model and return the prediction when it has succeeded.

        Inputs that are paths, bytes or open files are uploaded first. Raises `PredictionFailed` if it ends
        in another state, and `WaitExpired` after `timeout_seconds`.
        """
        prediction = await self.predictions.create(
            model, inputs, hardware=hardware, variant=variant, idempotency_key=idempotency_key
        )
        prediction = await self.predictions.wait(prediction["id"], timeout_seconds)
        if prediction["status"] != "succeeded":
            raise PredictionFailed(prediction)
        return prediction

    async def templates(self) -> Templates:
        """Return the templates of Container Hosting, with their inputs and prices."""
        return await self.request(ApiCall("GET", "/api/containers/templates"))
