"""Client of Replicate's predictions: create, poll, cancel; and of files for inputs too large for a data: URI.

Sources: https://replicate.com/docs/reference/http (routes, `Prefer: wait=n`, `Cancel-After`),
https://replicate.com/docs/topics/predictions/create-a-prediction (official models and versions),
https://replicate.com/docs/topics/predictions/rate-limits (429), and
https://replicate.com/docs/reference/error-codes (errors of predictions).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from sixfold.clients import provider_client
from sixfold.clients.provider_client import ProviderClient, ProviderEndpoint, ProviderRefusal, RequestBody
from sixfold.core.catalog.engines import EngineError
from sixfold.providers import PROVIDERS

State = Literal["queued", "running", "done", "failed", "canceled"]
_STATES: Mapping[str, State] = {
    "starting": "queued",
    "processing": "running",
    "succeeded": "done",
    "failed": "failed",
    "canceled": "canceled",
    "aborted": "canceled",
}
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_VERSION = re.compile(r"[0-9a-f]{64}")
# A longer time, of up to 4,300 digits, is ignored.
_MAX_SECONDS = 10**9
_FORBIDDEN = re.compile(r"nsfw|flagged as sensitive|content policy|\bE005\b", re.I)


def refusal(status: int, body: Any) -> ProviderRefusal:
    """Parse an error response of Replicate: problem details (RFC 7807) with `invalid_fields`."""
    document = provider_client.mapping(body)
    message = provider_client.text_of(document.get("detail") or document.get("title"))
    field = next(iter(provider_client.objects(document.get("invalid_fields"))), {})
    name = provider_client.text_of(field.get("field")).rpartition(".")[2]
    description = provider_client.text_of(field.get("description"))
    return provider_client.by_status(status, description or message, name)


REPLICATE = ProviderEndpoint(PROVIDERS["replicate"])


class ReplicatePrediction(msgspec.Struct, frozen=True):
    """A prediction of Replicate. `seconds` is the billed time for models that are billed by time."""

    id: str
    state: State
    output: Any
    log: str
    error: str
    seconds: float | None

    @property
    def ended(self) -> bool:
        """Whether the prediction has ended."""
        return self.state in {"done", "failed", "canceled"}

    @property
    def lines(self) -> Sequence[str]:
        """The lines of its log so far."""
        return self.log.splitlines()


class ReplicateClient:
    """A client of Replicate, with one token."""

    def __init__(self, to: ProviderClient) -> None:
        self._to = to

    async def create(
        self, model: str, inputs: Mapping[str, Any], *, wait_seconds: int, cancel_after_seconds: float
    ) -> ReplicatePrediction:
        """Start a prediction of an official model (`owner/name`) or of a version (`owner/name:version`).

        The response waits up to `wait_seconds` (0 to 60) for a quick prediction. Replicate cancels the
        prediction after `cancel_after_seconds`, even if this server has stopped.
        """
        name, _, version = model.partition(":")
        document: dict[str, Any] = {"input": dict(inputs)}
        path = f"models/{name}/predictions"
        if version or _VERSION.fullmatch(name):
            document["version"] = version or name
            path = "predictions"
        headers = {"Cancel-After": f"{max(5, round(cancel_after_seconds))}s"}
        if wait_seconds:
            headers["Prefer"] = f"wait={wait_seconds}"
        seconds = self._to.limits.call_seconds + wait_seconds
        response = await self._to.post(path, RequestBody(document), headers, seconds=seconds)
        return self._parse(response.document)

    async def poll(self, prediction: ReplicatePrediction) -> ReplicatePrediction:
        """Return the current state of a prediction."""
        return self._parse((await self._to.get(f"predictions/{prediction.id}")).document)

    async def cancel(self, prediction: ReplicatePrediction) -> None:
        """Cancel a prediction; a prediction that has ended is not changed."""
        await self._to.post(f"predictions/{prediction.id}/cancel", RequestBody())

    async def put_file(self, name: str, content: bytes, content_type: str) -> tuple[str, str]:
        """Store an input file; return its id and the URL from which a model can fetch it."""
        files = (("content", (name, content, content_type)),)
        document = provider_client.mapping((await self._to.post("files", RequestBody(files=files))).document)
        file_id, url = (
            provider_client.text_of(document.get("id")),
            provider_client.mapping(document.get("urls")).get("get"),
        )
        if not _ID.fullmatch(file_id) or not isinstance(url, str):
            raise self._unreadable()
        return file_id, url

    async def delete_file(self, file_id: str) -> None:
        await self._to.delete(f"files/{file_id}")

    def error(self, prediction: ReplicatePrediction) -> EngineError:
        """Return the error of a failed or canceled prediction."""
        if prediction.state == "canceled":
            return self._to.failed(ProviderRefusal("broken", message="canceled the prediction"))
        if _FORBIDDEN.search(prediction.error):
            return self._to.failed(ProviderRefusal("policy"))
        message = provider_client.presentable(prediction.error)
        return self._to.failed(
            ProviderRefusal("broken", message=f"failed ({message})" if message else "failed")
        )

    def _parse(self, document: Any) -> ReplicatePrediction:
        fields = provider_client.mapping(document)
        status = provider_client.text_of(fields.get("status"))
        prediction_id, state = provider_client.text_of(fields.get("id")), _STATES.get(status)
        if not _ID.fullmatch(prediction_id) or state is None:
            raise self._unreadable()
        seconds = provider_client.mapping(fields.get("metrics")).get("predict_time")
        is_number = isinstance(seconds, int | float)
        return ReplicatePrediction(
            id=prediction_id,
            state=state,
            output=fields.get("output"),
            log=provider_client.text_of(fields.get("logs")),
            error=provider_client.text_of(fields.get("error")),
            seconds=float(seconds) if is_number and abs(seconds) < _MAX_SECONDS else None,
        )

    def _unreadable(self) -> EngineError:
        return self._to.failed(ProviderRefusal("broken", message="returned a response that cannot be parsed"))
