"""Predictions, sessions, the Media API and the account, for the asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Unpack

from sixfold.client import requests
from sixfold.client.async_transport import AsyncTransport
from sixfold.client.errors import WaitExpired
from sixfold.client.requests import ApiCall
from sixfold.client.types.hosting import (
    OpenedSession,
    Prediction,
    Predictions,
    PredictionsQuery,
    Quote,
    Session,
)
from sixfold.client.types.media import Job, QueuedJob
from sixfold.client.types.platform import Account, Ledger, Usage

_RUNS = "/api/containers/predictions"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0


class AsyncPredictions:
    """Runs of models: `client.predictions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        model: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        wait: float = 0.0,
        hardware: str | None = None,
        variant: str | None = None,
        webhook: str | None = None,
        idempotency_key: str | None = None,
    ) -> Prediction:
        """Start a run and return its prediction when it has ended, or after `wait` seconds (at most 600)."""
        document = {
            "model": model,
            "input": await self._transport.prepare(inputs),
            "wait": wait,
            "hardware": hardware,
            "variant": variant,
            "webhook": webhook,
        }
        key = idempotency_key or requests.new_idempotency_key()
        call = ApiCall("POST", "/api/containers/run", document=document, idempotency_key=key, seconds=wait)
        return await self._transport.request(call)

    async def quote(self, model: str, inputs: Mapping[str, Any] | None = None) -> Quote:
        """Return the price of a run without starting it."""
        path = requests.path("/api/containers/{model}/quote", model=model)
        document = {"input": await self._transport.prepare(inputs)}
        return await self._transport.request(ApiCall("POST", path, document=document))

    async def get(self, prediction_id: str) -> Prediction:
        """Return a prediction."""
        return await self._transport.request(ApiCall("GET", _one(prediction_id)))

    async def list(self, **query: Unpack[PredictionsQuery]) -> Predictions:
        """Return a page of predictions, newest first; `next_cursor` is the `cursor` of the next page."""
        return await self._transport.request(ApiCall("GET", _RUNS, query=query))

    async def cancel(self, prediction_id: str) -> Prediction:
        """Cancel a prediction; it is not charged."""
        return await self._transport.request(ApiCall("POST", f"{_one(prediction_id)}/cancel"))

    async def events(self, prediction_id: str) -> AsyncIterator[tuple[str, Any]]:
        """Yield the events of a prediction as name and JSON until its end."""
        async for event in self._transport.stream(f"{_one(prediction_id)}/events"):
            yield event

    async def wait(self, prediction_id: str, timeout_seconds: float = 600.0) -> Prediction:
        """Return a prediction when it has ended; raises `WaitExpired` after `timeout_seconds`."""
        waited, pause = 0.0, _FIRST_PAUSE
        while True:
            prediction = await self.get(prediction_id)
            if prediction["status"] in requests.ENDED:
                return prediction
            if waited >= timeout_seconds:
                raise WaitExpired(prediction_id, timeout_seconds)
            seconds = min(pause, timeout_seconds - waited)
            await asyncio.sleep(seconds)
            waited, pause = waited + seconds, min(pause * 1.5, _LONGEST_PAUSE)


class AsyncSessions:
    """Live sessions: `client.sessions`. Frames are sent over the websocket at `session["ws_url"]`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, model: str, inputs: Mapping[str, Any] | None = None, *, hardware: str | None = None
    ) -> OpenedSession:
        """Open a session of a model."""
        path = requests.path("/api/containers/{model}/sessions", model=model)
        document = {"input": await self._transport.prepare(inputs), "hardware": hardware}
        key = requests.new_idempotency_key()
        return await self._transport.request(ApiCall("POST", path, document=document, idempotency_key=key))

    async def get(self, session_id: str) -> Session:
        """Return a session with its cost so far."""
        path = requests.path("/api/containers/sessions/{session}", session=session_id)
        return await self._transport.request(ApiCall("GET", path))

    async def close(self, session_id: str) -> Session:
        """Close a session and stop charging for it."""
        path = requests.path("/api/containers/sessions/{session}", session=session_id)
        return await self._transport.request(ApiCall("DELETE", path))


class AsyncMedia:
    """The Media API: `client.media`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, endpoint: str, inputs: Mapping[str, Any]) -> Any:
        """Call an endpoint such as `ra1` or `remove-background` and return its response."""
        path = requests.path("/api/{endpoint}", endpoint=endpoint)
        document = await self._transport.prepare(inputs)
        key = requests.new_idempotency_key()
        call = ApiCall("POST", path, document=document, idempotency_key=key, seconds=requests.POLL_SECONDS)
        return await self._transport.request(call)

    async def render(self, project: Mapping[str, Any]) -> QueuedJob:
        """Queue the rendering of a timeline and return its job."""
        return await self.create("video-editor/render", project)

    async def job(self, job_id: str) -> Job:
        """Return the state of a job."""
        return await self._transport.request(
            ApiCall("GET", requests.path("/api/media/status/{job}", job=job_id))
        )

    async def cancel(self, job_id: str) -> Job:
        """Cancel a job; it is not charged."""
        return await self._transport.request(
            ApiCall("DELETE", requests.path("/api/media/status/{job}", job=job_id))
        )


class AsyncAccount:
    """The account of the key: `client.account`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> Account:
        """Return the account with its balance."""
        return await self._transport.request(ApiCall("GET", "/api/account"))

    async def usage(self, days: int = 30, by: str | None = None) -> Usage:
        """Return the usage and charges of the last `days` days; `by` lists columns such as `day,model`."""
        return await self._transport.request(ApiCall("GET", "/api/account/usage", {"days": days, "by": by}))

    async def ledger(self, limit: int = 50, cursor: str | None = None) -> Ledger:
        """Return a page of the ledger, newest first."""
        return await self._transport.request(
            ApiCall("GET", "/api/account/ledger", {"limit": limit, "cursor": cursor})
        )


def _one(prediction_id: str) -> str:
    return requests.path(f"{_RUNS}/{{prediction}}", prediction=prediction_id)
