"""What somebody asks of the pipeline, and what it says of that before it takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions.models import Webhook


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """What somebody asks for, on whose behalf. `charged=False` is for orders without a key, and nothing else.

    `job=True` gives the prediction a job id, with which alone it can be asked after. `hardware` is what a
    model that is paid by time shall run on, `hold` the price of one that is paid by its children. `sources`
    are media inputs whose bytes are stored. A child (`parent`) has no hold; `most` is what it may cost, in
    micro-dollars. `full_only` refuses previews. `upload_path` is reserved for its result.
    """

    principal: Principal
    model: str
    inputs: Mapping[str, Any]
    face: str
    request_id: str
    idempotency_id: str | None = None
    charged: bool = True
    job: bool = False
    extras: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hardware: str | None = None
    hold: PriceRow | None = None
    webhook: Webhook | None = None
    sources: Mapping[str, MediaSource] = field(default_factory=dict[str, MediaSource])
    parent: ParentRun | None = None
    full_only: bool = False
    most: int | None = None
    upload_path: str | None = None

    @property
    def account_id(self) -> str:
        """The account that the order belongs to."""
        return self.principal.account_id


@dataclass(frozen=True, slots=True)
class ParentRun:
    """What orders a child: the prediction's id and model, and the key of its part; one child for each key."""

    id: str
    key: str
    model: str


@dataclass(frozen=True, slots=True)
class PriceQuote:
    """What an order would cost, and which engine would serve it."""

    price: PriceRow
    engine: EngineSpec
    quality: str
    values: Mapping[str, Any]
    hardware: str | None = None


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """The limits of the queue (`free_queue_limit` of one account, 0 is none) and of a run, and engines."""

    queue_limit: int
    terms: SelectionPolicy
    run_limit_seconds: float = 600.0
    free_queue_limit: int = 0
