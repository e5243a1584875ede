"""Client of fal's queue: submit, poll, fetch the result, cancel.

Sources: https://fal.ai/docs/documentation/model-apis/inference/queue (the states of a request),
https://fal.ai/docs/api-reference/inference-api (URLs come from the response and are not built),
https://fal.ai/docs/errors (what a model rejects), and
https://fal.ai/docs/documentation/model-apis/request-errors (other failures).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from sixfold.clients import provider_client
from sixfold.clients.provider_client import ProviderClient, ProviderEndpoint, ProviderRefusal, RequestBody
from sixfold.core.catalog.engines import EngineError
from sixfold.providers import PROVIDERS

State = Literal["queued", "running", "done"]
_STATES: Mapping[str, State] = {"IN_QUEUE": "queued", "IN_PROGRESS": "running", "COMPLETED": "done"}
# Lines of a log that are read, of which a run records the first.
_MAX_LINES = 1_000


def refusal(status: int, document: Any) -> ProviderRefusal:
    """Parse an error response of fal.

    Rejections by a model are a list under `detail`, each with the location (`loc`), the reason (`msg`) and
    the `type`; only the text of the error shows that an account has insufficient credit ("locked").
    """
    detail = provider_client.mapping(document).get("detail")
    if isinstance(detail, str):
        detail = provider_client.text_of(detail)
        if "balance" in detail.lower() or "user is locked" in detail.lower():
            return ProviderRefusal("credit")
        return provider_client.by_status(status, detail)
    first = next(iter(provider_client.objects(detail)), {})
    if first.get("type") == "content_policy_violation":
        return ProviderRefusal("policy")
    location = first.get("loc")
    names = [part for part in location if isinstance(part, str)] if isinstance(location, list) else []
    name = provider_client.text_of(names[-1]) if names and names[-1] != "body" else ""
    return provider_client.by_status(status, provider_client.text_of(first.get("msg")), name)


FAL = ProviderEndpoint(PROVIDERS["fal"])


class FalRequest(msgspec.Struct, frozen=True):
    """A request in fal's queue, with the URLs that fal returned for it.

    `lines` is its log so far. The state of a failed request is `done` too.
    """

    status_url: str
    response_url: str
    cancel_url: str
    state: State = "queued"
    lines: tuple[str, ...] = ()
    failed: bool = False

    @property
    def ended(self) -> bool:
        """Whether the request has ended."""
        return self.state == "done"


class FalResult(msgspec.Struct, frozen=True):
    """The output of a model, and the billed units if fal reports them."""

    document: Mapping[str, Any]
    billed_units: float | None


class FalClient:
    """A client of fal's queue, with one key."""

    def __init__(self, to: ProviderClient) -> None:
        self._to = to

    async def submit(self, model: str, inputs: Mapping[str, Any], *, start_seconds: float) -> FalRequest:
        """Queue a request; fal drops it if it has not started after `start_seconds`."""
        headers = {"X-Fal-Request-Timeout": f"{start_seconds:g}"}
        response = await self._to.post(model, RequestBody(dict(inputs)), headers)
        document = provider_client.mapping(response.document)
        status_url, response_url, cancel_url = (
            provider_client.text_of(document.get(name))
            for name in ("status_url", "response_url", "cancel_url")
        )
        if not (status_url and response_url and cancel_url):
            raise self._unreadable()
        return FalRequest(status_url, response_url, cancel_url)

    async def poll(self, request: FalRequest) -> FalRequest:
        """Return the request with its current state and log."""
        document = provider_client.mapping((await self._to.get(request.status_url, {"logs": "1"})).document)
        state = _STATES.get(provider_client.text_of(document.get("status")))
        if state is None:
            raise self._unreadable()
        logs = document.get("logs")
        entries = provider_client.objects(logs[:_MAX_LINES] if isinstance(logs, list) else None)
        lines = tuple(provider_client.text_of(entry.get("message")) for entry in entries)
        failed = bool(document.get("error") or document.get("error_type"))
        return replace(request, state=state, lines=lines, failed=failed)

    async def result(self, request: FalRequest) -> FalResult:
        """Return the output of a finished request; raises `EngineError` if it failed."""
        response = await self._to.get(request.response_url, once=request.failed)
        if not isinstance(response.document, dict):
            raise self._unreadable()
        units = provider_client.non_negative(response.headers.get("x-fal-billable-units", ""))
        return FalResult(response.document, units)

    async def cancel(self, request: FalRequest) -> None:
        """Cancel a request; a request that has ended is not changed."""
        await self._to.put(request.cancel_url)

    def _unreadable(self) -> EngineError:
        return self._to.failed(ProviderRefusal("broken", message="returned a response that cannot be parsed"))
