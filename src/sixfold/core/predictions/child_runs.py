"""Child predictions, with which a workflow runs its expensive nodes through the prediction service."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.metering import CHILDREN
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database, Query, Transaction
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions import requests
from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import ParentRun, PredictionRequest
from sixfold.core.predictions.service import PredictionService
from sixfold.core.predictions.states import PredictionState

_WAIT_SECONDS = 60.0
_URL = re.compile(r"\s*https?://\S+\s*", re.IGNORECASE)
# Escapes of characters of URLs in JSON, as which a node receives the inputs of a model.
_ESCAPE = re.compile(r"\\(?:/|u([0-9a-fA-F]{4}))")


class ChildRun(msgspec.Struct, frozen=True):
    """A request for a child; `key` identifies the part of the parent, so a repetition has no effect.

    `files` are media inputs that are already stored; `max_price` is the maximum price in micro-dollars.
    """

    key: str
    model: str
    inputs: Mapping[str, Any]
    files: Mapping[str, MediaSource] = {}
    max_price: int | None = None


class ChildRunPort(Protocol):
    """Runs child predictions for an engine (`HostServices.children`)."""

    async def parent(self, prediction_id: str) -> Prediction: ...

    async def principal(self, prediction: Prediction) -> Principal:
        """Return the principal that requested a prediction, whose key's rates count its tokens."""
        ...

    async def run(self, parent: Prediction, child: ChildRun) -> Prediction:
        """Submit a child, or find the earlier child with this key, and wait until it ends.

        Raises the errors of `PredictionService.submit`, and `BadRequest` for a URL that the parent of a
        customer does not contain if the parent has a price. Canceling the wait cancels the child.
        """
        ...


class PipelineChildren:
    """Runs children through the prediction service, and cancels them if their parent does not succeed."""

    def __init__(self, service: PredictionService, database: Database) -> None:
        self._predictions = service
        self._database = database
        self._canceling: set[asyncio.Task[None]] = set()
        service.bus.watchers.append(self._on_event)

    def _on_event(self, _prediction_id: str, event: Event) -> None:
        if not isinstance(event, StateChanged) or not event.prediction.is_terminal:
            return
        if event.prediction.meter == CHILDREN and event.prediction.state is not PredictionState.SUCCEEDED:
            task = asyncio.create_task(self._cancel_children(event.prediction.id))
            self._canceling.add(task)
            task.add_done_callback(self._canceling.discard)

    async def _cancel_children(self, parent_id: str) -> None:
        # No child is accepted once the parent has ended, so this finds all children. If the database fails,
        # the children end without being canceled and are not charged.
        with contextlib.suppress(errors.StoreFailed):
            for child in await self._database.read(_unfinished(parent_id)):
                await self._predictions.cancel(child.id, Tenant.of(child))

    async def parent(self, prediction_id: str) -> Prediction:
        row = await self._database.read(predictions.any_row(prediction_id), snapshot=False)
        return await PARSER.run_large(Prediction.stored_size(row), Prediction.from_row_unredacted, row)

    async def principal(self, prediction: Prediction) -> Principal:
        return await self._database.read(requests.principal_of(prediction))

    async def run(self, parent: Prediction, child: ChildRun) -> Prediction:
        principal = await self.principal(parent)
        # An operator can use every model without paying.
        if parent.price and not principal.is_operator:
            await _check_urls(parent, child.inputs)
        request = PredictionRequest(
            principal=principal,
            model=child.model,
            inputs={**child.inputs, **{name: source.blob for name, source in child.files.items()}},
            face=parent.face,
            request_id=parent.request_id,
            charged=parent.meter == CHILDREN,
            sources=child.files,
            parent=ParentRun(parent.id, child.key, parent.model),
            max_price=child.max_price,
        )
        submitted = await self._predictions.submit(request)
        finished = submitted
        try:
            while not finished.is_terminal:
                finished = await self._predictions.wait(submitted, _WAIT_SECONDS)
                if self._predictions.draining:
                    break
        finally:
            if not finished.is_terminal and not self._predictions.draining:
                await self._predictions.cancel(submitted.id, Tenant.of(submitted))
        if finished.withheld:
            return await self.parent(finished.id)
        return finished


async def _check_urls(parent: Prediction, inputs: Mapping[str, Any]) -> None:
    """Raise `BadRequest` for a URL that contains results of other children, which may never be paid.

    Its server would receive the results, also if the parent then fails.
    """
    urls = [text for text in _texts(inputs) if _URL.fullmatch(text)]
    if urls and await PARSER.run_large(parent.size * len(urls), _has_new, parent, urls):
        raise errors.BadRequest(
            "The URL of an input contains results of other nodes, which are charged only if the graph "
            "succeeds: use a URL that is in the graph"
        )


def _has_new(parent: Prediction, urls: Sequence[str]) -> bool:
    texts = [*_texts(parent.inputs), *_texts(parent.task.inputs)]
    known = [*texts, *(_ESCAPE.sub(_unescaped, text) for text in texts if "\\" in text)]
    return any(not any(url in text for text in known) for url in urls)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else "/"


def _texts(value: object) -> Iterator[str]:
    """Yield the strings in a value as decoded from JSON."""
    values = [value]
    while values:
        each = values.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            values += cast("Mapping[str, object]", each).values()
        elif isinstance(each, list | tuple):
            values += cast("Sequence[object]", each)


def _unfinished(parent_id: str) -> Transaction[tuple[Prediction, ...]]:
    rows = yield Query("prediction_children", {"parent_id": parent_id})
    return tuple(Prediction.from_row(row) for row in rows)
