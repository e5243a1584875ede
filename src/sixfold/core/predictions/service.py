"""The prediction service, which validates, prices, holds and queues requests for the scheduler.

Requests of all APIs for predictions go through `PredictionService.submit`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog import metering
from sixfold.core.catalog.custom_models import CustomModels
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.models import Catalog, Model
from sixfold.core.concurrency.single_thread import LOOP_BYTES, PARSER
from sixfold.core.database import Database
from sixfold.core.failpoints import Failpoints
from sixfold.core.media.media import MediaService
from sixfold.core.predictions import pricing, queries, refunds, requests, video_backends
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.event_history import AcceptedRuns
from sixfold.core.predictions.events import Event, EventBus, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.repository import PredictionDraft
from sixfold.core.predictions.requests import AdmissionPolicy, PredictionRequest, PriceQuote
from sixfold.core.predictions.states import PredictionState
from sixfold.core.predictions.waiters import RunWaiters
from sixfold.core.provenance import redaction as manifest_inputs

_APPRAISED = (metering.CHILDREN, metering.TOKENS)


class PredictionService:
    """Accepts, reads, awaits and cancels predictions.

    `appraisers` maps the names of prices that are not in the price table to functions that estimate the
    amount to hold. `admit` maps names of models to functions that check rate limits. `prepare` does the slow
    part of a quote in slices. `named_files` finds the files that texts refer to by name.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        media: MediaService,
        bus: EventBus,
        policy: AdmissionPolicy,
        failpoints: Failpoints,
    ) -> None:
        self._database = database
        self.catalog = catalog
        self._media = media
        self.bus = bus
        self._policy = policy
        self.failpoints = failpoints
        self.waiters = RunWaiters()
        self._accepted_runs = AcceptedRuns(bus)
        self.custom_models = CustomModels(database, catalog, policy.model_versions)
        self.quotes = pricing.QuoteCache(catalog, bus)
        self.check: Callable[[Model, Mapping[str, Any]], dict[str, Any]] = Model.check
        self.appraisers: dict[str, metering.PriceEstimator] = dict.fromkeys(_APPRAISED, metering.unpriced)
        self.prepare: metering.Preparer = metering.prepare_nothing
        self.named_files: requests.NamedFiles = requests.no_named_files
        self.admit: dict[str, Callable[[Principal, Mapping[str, Any]], Awaitable[None]]] = {}
        self.on_accepted: Callable[[Prediction], None] = lambda _prediction: None
        self.on_cancel: Callable[[Prediction], None] = lambda _prediction: None

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down and does not accept requests."""
        return self.waiters.draining

    @property
    def terms(self) -> SelectionPolicy:
        """The policy by which engines are selected for charged requests."""
        return self._policy.terms

    async def find(self, name: str, account_id: str) -> Model:
        """Return a built-in model or a custom model of the account; raises `NotFound`."""
        if name in self.catalog:
            return self.catalog.public(name)
        return (await self.custom_models.find(name, account_id)).model

    def quote(
        self,
        name_or_model: str | Model,
        inputs: Mapping[str, Any] | metering.PreparedQuote,
        *,
        charged: bool = True,
        hardware: str | None = None,
        stored: Collection[str] = (),
        full_only: bool = False,
    ) -> PriceQuote:
        """Validate and price a request; raises `NotFound`, `InvalidInput` or `EngineUnavailable`.

        A request that is not charged is never sent to a provider, because the provider would charge the
        operator. A request that specifies hardware is charged by time. Media inputs in `stored` have bytes in
        the blob store; `full_only` excludes previews. `inputs` may be the result of `prepare`.
        """
        model = self.catalog.public(name_or_model) if isinstance(name_or_model, str) else name_or_model
        prepared = isinstance(inputs, metering.PreparedQuote)
        values = inputs.inputs() if prepared else requests.checked(self.check, model, inputs, stored)
        rates, is_container = self.catalog.rates, model.price == metering.CONTAINER_TIME
        by_time = hardware is not None or is_container
        if hardware is not None and not (is_container or rates.is_charged_by_time(model.name)):
            raise errors.InvalidInput.of(
                "hardware", f"{model.name} has a fixed price and does not accept hardware", "extra_forbidden"
            )
        rate = rates.hardware_rate(model.name, hardware or model.hardware) if by_time else None
        terms = msgspec.structs.replace(self._policy.terms, paid=charged, full_only=full_only)
        engine, quality = model.choose(values, terms, stored)
        self.catalog.check_runs(model, engine, values, terms)
        if model.price in self.appraisers and hardware is None:
            estimate = self.appraisers[model.price]
            price = inputs.price() if prepared else estimate(model, values, charged=charged)
            return PriceQuote(price, engine, quality, values)
        limit = self._policy.run_limit_seconds
        list_price = self.catalog.price(model, values) if rate is None else rate.price(limit)
        price = pricing.charged_price(list_price, self.catalog, model, engine, values)
        return PriceQuote(price, engine, quality, values, None if rate is None else rate.hardware)

    async def submit(self, request: PredictionRequest) -> Prediction:
        """Accept a request; when this returns, it is durable, held and queued.

        Raises `Unauthenticated`, `Forbidden`, `QueueFull`, `TooLarge`, `InsufficientCredits` or the errors of
        `quote`; in this case, nothing is changed.
        """
        return (await self.submit_all((request,)))[0]

    async def submit_all(self, batch: Sequence[PredictionRequest]) -> list[Prediction]:
        """Accept all requests of one account or none. Raises the errors of `submit`."""
        for request in batch:
            requests.authorize(request)
        if self.draining:
            raise errors.ShuttingDown
        # Prices may be reloaded between the quote and the acceptance.
        with self.catalog.at(self.catalog.prices):
            drafts = [await self._price(request) for request in batch]
        self.failpoints.hit("accept.before")
        with self._accepted_runs.accepting([draft.id for draft in drafts]):
            accepted = await self._database.write(requests.accept(batch, drafts, self._policy))
        self.failpoints.hit("accept.after")
        for prediction in accepted:
            self.quotes.store(prediction)
            self.bus.publish(prediction.id, StateChanged(prediction))
            self.on_accepted(prediction)
        return accepted

    async def _price(self, request: PredictionRequest) -> PredictionDraft:
        started_ns = time.perf_counter_ns()
        owner = request.account_id if request.charged else ""
        model = self.catalog[request.model] if request.internal else await self.find(request.model, owner)
        charged, stored, full = request.charged, request.sources, request.full_only
        try:
            values = await self.prepare(model, request.inputs, charged=charged)
            quote = self.quote(
                model, values, charged=charged, hardware=request.hardware, stored=stored, full_only=full
            )
        except errors.InvalidInput as invalid:
            find_named = functools.partial(self.named_files, request, model)
            checks = requests.FileChecks(self._media, find_named, stored)
            raise await checks.complete(invalid, request.principal.tenant, model, request.inputs) from invalid
        if model.name in self.admit:
            await self.admit[model.name](request.principal, quote.values)
        files = await self.named_files(request, model, quote.values)
        request = msgspec.structs.replace(request, sources={**files, **request.sources})
        sources = await requests.resolve_sources(request, model, quote.values, self._media, self._policy)
        quote = pricing.quote_project(self.catalog, model, quote, sources)
        pricing.check_max_price(request, quote)
        request = await video_backends.assign(request, model, quote, self.catalog, self._database)
        size = manifest_inputs.minimum_size(quote.values, LOOP_BYTES + 1)
        inputs = await PARSER.run_large(size, manifest_inputs.clean, quote.values)
        draft = requests.draft(request, model, quote, sources, inputs)
        await queries.reserve_inputs(draft)
        fingerprint = await PARSER.run_large(size, requests.fingerprint, draft, quote.engine)
        priced_us = (time.perf_counter_ns() - started_ns) // 1000
        return msgspec.structs.replace(draft, fingerprint=fingerprint, priced_us=priced_us)

    async def get(self, prediction_id: str, tenant: Tenant) -> Prediction:
        """Return a prediction of a tenant; raises `NotFound`."""
        return await queries.load(
            self._database, prediction_id, lambda: predictions.visible_row(prediction_id, tenant)
        )

    async def get_any(self, prediction_id: str) -> Prediction:
        """Return a prediction of any account, for internal callers; raises `NotFound`."""
        return await queries.load(self._database, prediction_id, lambda: predictions.any_row(prediction_id))

    async def by_job(self, job_id: str) -> Prediction:
        """Return a prediction by its job id; raises `NotFound`."""
        return await queries.load(self._database, job_id, lambda: predictions.row_by_job(job_id))

    async def position(self, prediction: Prediction) -> int:
        """Return the number of predictions ahead of a queued prediction."""
        return await self._database.read(queries.position(prediction), snapshot=False)

    async def count_waiting(self, engine: str) -> int:
        """Return the number of queued predictions of an engine."""
        return await self._database.read(queries.count_waiting(engine), snapshot=False)

    async def page(
        self, tenant: Tenant, filters: PredictionFilter, limit: int, cursor: str | None
    ) -> tuple[tuple[Prediction, ...], str | None]:
        """Return a page of a tenant's predictions, newest first, and the cursor of the next page."""
        rows, following = await queries.page(self._database, tenant, filters, limit, cursor)
        size = sum(map(Prediction.stored_size, rows))
        return await PARSER.run_large(size, lambda: tuple(map(Prediction.from_row, rows))), following

    async def wait(
        self, prediction: Prediction, timeout_seconds: float, *, patient: bool = False
    ) -> Prediction:
        """Return the ended prediction, or its state after the timeout or when the server drains.

        After `submit`, the events contain the state. `patient` is for callers that cannot poll by an id.
        """
        with self.bus.listen(prediction.id) as events:
            read_current = functools.partial(self.get_any, prediction.id)
            current = self._accepted_runs.state(prediction) or await read_current()
            if current.is_terminal:
                return current
            return await self.waiters.wait(events, read_current, timeout_seconds, patient=patient)

    async def events(self, prediction: Prediction) -> AsyncIterator[Event]:
        """Yield the current state, followed by all events until the prediction ends."""
        with self.bus.listen(prediction.id) as queue:
            current = await self.get_any(prediction.id)
            yield StateChanged(current)
            while not current.is_terminal:
                event = await queue.get()
                yield event
                if isinstance(event, StateChanged):
                    current = event.prediction

    async def cancel(self, prediction_id: str, tenant: Tenant) -> Prediction:
        """Cancel a prediction unless it has ended or shows partial images; raises `NotFound`."""
        prediction = await self._database.write(predictions.cancel(prediction_id, tenant))
        self.bus.publish(prediction.id, StateChanged(prediction))
        if prediction.state is PredictionState.CANCELING:
            self.on_cancel(prediction)
        return prediction

    async def refund(self, prediction: Prediction, reason: str) -> Prediction:
        """Refund a succeeded prediction whose result cannot be delivered, and withdraw the result."""
        self.failpoints.hit("refund.before")
        refunded_prediction = await self._database.write(refunds.refund(prediction.id, reason))
        self.failpoints.hit("refund.after")
        self.bus.publish(refunded_prediction.id, StateChanged(refunded_prediction))
        return refunded_prediction

    def drain(self) -> None:
        """Start the shutdown: end all waits except those with `patient=True`."""
        self.waiters.drain()
