"""Requests to the prediction service: their authorization, media inputs, quotes and admission policy."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.prices import FREE, PriceRow
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog import inputs as catalog_inputs
from sixfold.core.catalog import metering, timeline, unknown_names
from sixfold.core.catalog.custom_models import MAX_VERSIONS
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.engines import TaskRecord
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.models import EngineSpec, Model
from sixfold.core.database import Transaction, one
from sixfold.core.media import media as media_files
from sixfold.core.media.media import MediaService, MediaSource
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.models import Prediction, Webhook
from sixfold.core.predictions.repository import PredictionDraft

_MAX_SEED = 2**31


class PredictionRequest(msgspec.Struct, frozen=True):
    """A request to run a model on behalf of `principal`.

    - `charged`: False only for requests without a key.
    - `job`: create a job id, which alone gives access to the prediction.
    - `hardware`: the hardware to run on, for a model that is charged by time.
    - `hold`: the price of a model that is charged by its children.
    - `sources`: media inputs whose bytes are already stored.
    - `parent`: the parent of a child, which has no separate hold.
    - `max_price`: the maximum price of a child in micro-dollars.
    - `full_only`: exclude engines of preview quality.
    - `upload_path`: the save path to reserve for the result.
    - `internal`: allow a model that clients cannot run, whose request is in `extras`.
    """

    principal: Principal
    model: str
    inputs: Mapping[str, Any]
    face: str
    request_id: str
    idempotency_id: str | None = None
    charged: bool = True
    job: bool = False
    extras: Mapping[str, Any] = {}
    hardware: str | None = None
    hold: PriceRow | None = None
    webhook: Webhook | None = None
    sources: Mapping[str, MediaSource] = {}
    parent: ParentRun | None = None
    full_only: bool = False
    max_price: int | None = None
    upload_path: str | None = None
    internal: bool = False

    @property
    def account_id(self) -> str:
        return self.principal.account_id


class ParentRun(msgspec.Struct, frozen=True):
    """The prediction that requests a child; `key` identifies the child among its children."""

    id: str
    key: str
    model: str


class PriceQuote(msgspec.Struct, frozen=True):
    """The price of a request, and the engine that would serve it."""

    price: PriceRow
    engine: EngineSpec
    quality: str
    values: Mapping[str, Any]
    hardware: str | None = None


async def accept_glyphs(_project: Mapping[str, Any]) -> None:
    """Accept the texts of a project without a check, if the available fonts are unknown."""


class AdmissionPolicy(msgspec.Struct, frozen=True):
    """Limits on the queue and on a run, and the policy by which engines are selected.

    `free_queue_limit` counts unfinished free requests of one account, and `free_bytes` the bytes that its
    free runs have stored and, separately, its large inputs; 0 means unlimited. `model_versions` counts all
    versions of an account's custom models. `check_glyphs` raises `InvalidInput` for texts of a checked video
    project that cannot be drawn.
    """

    queue_limit: int
    terms: SelectionPolicy
    run_limit_seconds: float = 600.0
    free_queue_limit: int = 0
    model_versions: int = MAX_VERSIONS
    check_glyphs: Callable[[Mapping[str, Any]], Awaitable[None]] = accept_glyphs
    free_bytes: int = 0


def accept(
    batch: Sequence[PredictionRequest], drafts: Sequence[PredictionDraft], policy: AdmissionPolicy
) -> Transaction[list[Prediction]]:
    """Return a transaction that accepts the drafts of all requests of a principal or none.

    It first checks the credential of a late request again, because inputs may be fetched from a slow server.
    Raises `Unauthenticated`, `QueueFull`, `Conflict`, `InsufficientCredits` or `TooLarge`.
    """
    principal = batch[0].principal
    transaction = _accept(drafts, policy, is_limited=not principal.is_operator)
    return transaction if batch[0].parent else access_checks.while_valid(principal, transaction)


def _accept(
    drafts: Sequence[PredictionDraft], policy: AdmissionPolicy, *, is_limited: bool
) -> Transaction[list[Prediction]]:
    """Accept all drafts of an account; the limits on free requests apply if the account `is_limited`."""
    free_limit = policy.free_queue_limit if is_limited else 0
    accepted = yield from predictions.accept_all(drafts, policy.queue_limit, free_limit)
    if not is_limited or not policy.free_bytes:
        return accepted
    # A repeated request returns an earlier prediction.
    created = [
        (draft, prediction)
        for draft, prediction in zip(drafts, accepted, strict=True)
        if draft.id == prediction.id
    ]
    if any(draft.parent_id is None and not draft.price.micros for draft, _ in created):
        yield from _check_free_bytes(drafts[0].account_id, policy.free_bytes)
    # A character has up to 4 bytes.
    if any(prediction.size >= predictions.LARGE_INPUTS // 4 for _, prediction in created):
        yield from _check_input_bytes(drafts[0].account_id, policy.free_bytes)
    return accepted


def _check_free_bytes(account_id: str, most: int) -> Transaction[None]:
    row = yield from one("storage_usage", account_id=account_id)
    used_bytes = int(row["free_bytes"]) if row is not None else 0
    if used_bytes >= most:
        raise errors.TooLarge(
            f"The outputs of this account's free runs use {used_bytes:,} bytes, and the limit is {most:,}: "
            "delete some of these runs"
        )


def _check_input_bytes(account_id: str, most: int) -> Transaction[None]:
    row = yield from one("prediction_input_bytes", account_id=account_id)
    used_bytes = int(row["used"]) if row is not None else 0
    if used_bytes > most:
        raise errors.TooLarge(
            f"The inputs of this account's free and unsuccessful runs use {used_bytes:,} bytes, and the "
            f"limit is {most:,}: delete some of these runs"
        )


def authorize(request: PredictionRequest) -> None:
    """Raise `Forbidden` if the principal may not run this model.

    A child is allowed if a limit on models includes the child's model or its parent's.
    """
    request.principal.require(rights.RUN)
    request.principal.permit(request.model, *(() if request.parent is None else (request.parent.model,)))


def principal_of(prediction: Prediction) -> Transaction[Principal]:
    """Return the principal that requested a prediction: its key, or else the account's owner.

    A later suspension is ignored, because an accepted run is completed.
    """
    if prediction.key_id is None:
        owner = (yield from accounts.by_id(prediction.account_id)).owner
        return replace(owner.without_key() if prediction.keyless else owner, suspended=False)
    principal = yield from keys.by_id(prediction.key_id)
    return replace(principal or Principal(prediction.account_id, "", ""), suspended=False)


NamedFiles = Callable[[PredictionRequest, Model, Mapping[str, Any]], Awaitable[Mapping[str, MediaSource]]]


async def no_named_files(
    _request: PredictionRequest, _model: Model, _values: Mapping[str, Any]
) -> Mapping[str, MediaSource]:
    """Return an empty mapping, for models whose files are all media inputs."""
    return {}


def checked(
    check: Callable[[Model, Mapping[str, Any]], dict[str, Any]],
    model: Model,
    inputs: Mapping[str, Any],
    stored: Collection[str],
) -> dict[str, Any]:
    """Return the validated inputs; `InvalidInput` also names the media inputs that cannot be URLs."""
    try:
        return check(model, inputs)
    except errors.InvalidInput as invalid:
        raise invalid.joined(model.invalid_addresses(inputs, stored)) from invalid


class FileChecks(msgspec.Struct, frozen=True):
    """Checks of the files that invalid inputs name, so that the error names every failing input.

    `find_named` raises `InvalidInput` for the files of a workflow that do not exist. Media inputs in `stored`
    have bytes in the blob store.
    """

    media: MediaService
    find_named: Callable[[Mapping[str, Any]], Awaitable[object]] | None = None
    stored: Collection[str] = ()

    async def complete(
        self, invalid: errors.InvalidInput, tenant: Tenant, model: Model, inputs: Mapping[str, Any]
    ) -> errors.InvalidInput:
        """Return the error with the problems of files, without a request to another server."""
        invalid = invalid.joined(model.invalid_addresses(inputs, self.stored))
        if self.find_named is not None:
            invalid = await _joined(invalid, self.find_named(self._local(inputs)))
        # Only a workflow resolves the names of its files.
        files = {} if model.price == metering.CHILDREN else _valid_media(model, inputs)
        for name, (descriptor, text) in files.items():
            if name not in self.stored:
                invalid = await _joined(invalid, self.media.check_unfetched(tenant, descriptor, text))
        return invalid

    def _local(self, inputs: Mapping[str, Any]) -> dict[str, str]:
        """Return the texts that are not URLs of other servers."""
        texts = {name: value for name, value in inputs.items() if isinstance(value, str)}
        is_url = catalog_inputs.ADDRESS.match
        return {
            name: text
            for name, text in texts.items()
            if not (is_url(text.strip()) and self.media.is_remote(text.strip()))
        }


def _valid_media(model: Model, inputs: Mapping[str, Any]) -> dict[str, tuple[Descriptor, str]]:
    """Return the media inputs that are valid on their own, with their texts."""
    media = model.media_inputs
    valid = catalog_inputs.valid_values((*media, *model.image_lists), inputs)
    single = {each.name: (each, valid[each.name]) for each in media if each.name in valid}
    return single | model.listed_images(valid)


async def _joined(invalid: errors.InvalidInput, check: Awaitable[object]) -> errors.InvalidInput:
    try:
        await check
    except errors.InvalidInput as further:
        return invalid.joined(further.problems)
    return invalid


async def resolve_sources(
    request: PredictionRequest,
    model: Model,
    values: Mapping[str, Any],
    media: MediaService,
    policy: AdmissionPolicy,
) -> dict[str, MediaSource]:
    """Return the media source of each media input by name; raises `InvalidInput` with all problems.

    The texts of a video project are checked before its files are fetched.
    """
    sources, tenant = dict(request.sources), request.principal.tenant
    if invalid := model.invalid_addresses(values, sources):
        raise errors.InvalidInput(invalid)
    problems: list[errors.Problem] = []
    for descriptor in model.media_inputs:
        text = values.get(descriptor.name)
        if text is not None and descriptor.name not in sources:
            try:
                sources[descriptor.name] = await media.resolve(tenant, descriptor, text)
            except errors.InvalidInput as invalid:
                problems += invalid.problems
    if problems:
        raise errors.InvalidInput(problems)
    sources |= await media.resolve_all(tenant, model.listed_images(values))
    for name in model.projects & values.keys():
        await policy.check_glyphs(values[name])
        clips, urls = timeline.media(values[name]), timeline.urls(values[name])
        clip_sources = {clip: (clips[clip], urls[clip]) for clip in clips if clip not in sources}
        sources |= await media.resolve_all(tenant, clip_sources)
    return sources


def draft(
    request: PredictionRequest,
    model: Model,
    quote: PriceQuote,
    sources: Mapping[str, MediaSource],
    inputs: Mapping[str, Any],
) -> PredictionDraft:
    """Return the record of an accepted request, with inputs for its manifest.

    A missing seed is chosen at random.
    """
    values = {**model.for_engine(quote.values), **request.extras}
    randomize = model.takes("seed") and values.pop("randomize_seed", False)
    if randomize or (model.takes("seed") and values.get("seed", -1) < 0):
        # The seed of a child is derived from its key, so a repeated run of the parent uses the same seed.
        key = "" if randomize or request.parent is None else request.parent.key
        values["seed"] = ids.draw(_MAX_SEED, key)
    for name in (*sources, *(image_list.name for image_list in model.image_lists)):
        values.pop(name, None)
    for name in model.projects & values.keys():
        values[name] = timeline.without_urls(values[name])
    task = TaskRecord(values, {**model.files, **{name: source.blob for name, source in sources.items()}})
    parent = request.parent
    prediction_id = ids.new("pred") if parent is None else ids.derived(parent.id, parent.key)
    media = [
        media_files.input_record(source, request.account_id, prediction_id) for source in sources.values()
    ]
    return PredictionDraft(
        id=prediction_id,
        account_id=request.account_id,
        job_id=ids.new("job") if request.job else None,
        request_id=request.request_id,
        idempotency_id=request.idempotency_id,
        face=request.face,
        model=model.name,
        engine=quote.engine.name,
        quality=quote.quality,
        output_kind=model.output_kind,
        inputs=inputs,
        task=task,
        fingerprint=b"",
        price=(request.hold or quote.price) if request.charged else FREE,
        priced_us=0,
        parent_id=None if parent is None else parent.id,
        hardware=quote.hardware,
        payer=budgets.payer_of(request.principal),
        key_id=request.principal.key_id,
        webhook=request.webhook,
        upload_path=request.upload_path,
        media=tuple(media),
        keyless=request.principal.keyless,
        credential_id=request.principal.credential_id,
        ignored_inputs={} if parent else unknown_names.ignored_inputs(model.inputs, request.inputs),
        prompt_id=request.extras.get("prompt_id") if request.internal else None,
    )


def fingerprint(draft: PredictionDraft, engine: EngineSpec) -> bytes:
    """Return a hash that is equal for tasks with equal results: same model, engine, version and inputs."""
    content = msgspec.json.encode([draft.model, engine.name, engine.version, draft.task], order="sorted")
    return hashlib.blake2b(content, digest_size=16).digest()
