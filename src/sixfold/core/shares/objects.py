"""The objects that can be shared: runs, workflows, chats and memory pages, read on behalf of the owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database, Row, Transaction, one
from sixfold.core.gateway.conversations.conversations import ConversationNotFound
from sixfold.core.input_limits import json_decoding
from sixfold.core.memory import pages, queries
from sixfold.core.memory.models import Caller, MemoryPage
from sixfold.core.predictions.history.titles import title_of
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows.workflows import PREFIX

ShareKind = Literal["run", "workflow", "chat", "page"]
KINDS: Final[tuple[ShareKind, ...]] = ("run", "workflow", "chat", "page")


class ShareTarget(msgspec.Struct, frozen=True):
    """An object to share: its id, its title, and the position of the last item of a chat."""

    id: str
    title: str
    last_place: int = 0


def locate(principal: Principal, kind: ShareKind, object_id: str) -> Transaction[ShareTarget]:
    """Return an object of a principal.

    Raises `NotFound`, `Conflict` for an object without content or a result, and `Forbidden` without the right
    to read the memory or for a workflow that a limited key may not use.
    """
    return (yield from _LOCATORS[kind](principal, object_id))


def _run(principal: Principal, object_id: str) -> Transaction[ShareTarget]:
    row = yield from one("prediction_by_id", id=object_id)
    if row is None or not principal.tenant.sees(row["account_id"], row["credential_id"] or ""):
        raise errors.NotFound("Prediction not found")
    if row["state"] != PredictionState.SUCCEEDED or row["withheld"]:
        raise errors.Conflict(
            f"Only a run that has succeeded can be shared (the state of this run: {row['state']})"
        )
    prediction = Prediction.from_row(row)
    return ShareTarget(prediction.id, title_of(prediction.inputs) or prediction.model)


def _workflow(principal: Principal, object_id: str) -> Transaction[ShareTarget]:
    name = PREFIX + object_id
    principal.permit(name)
    row = yield from one("custom_model_newest", account_id=principal.account_id, name=name)
    if row is None:
        raise errors.NotFound(
            f"The account has no workflow {object_id[:100]!r}; built-in workflows are already public and "
            "cannot be shared"
        )
    document = json_decoding.decode(row["document"].encode())
    return ShareTarget(object_id, str(document["models"][name].get("title", object_id)))


def _chat(principal: Principal, object_id: str) -> Transaction[ShareTarget]:
    row = yield from one("share_chat", **principal.tenant.row, id=object_id)
    if row is None:
        raise ConversationNotFound(object_id)
    if not row["items"]:
        raise errors.Conflict("The chat has no messages yet: send one first")
    return ShareTarget(object_id, row["title"], row["last_place"])


def _page(principal: Principal, object_id: str) -> Transaction[ShareTarget]:
    principal.require(rights.MEMORY_READ)
    page = yield from queries.by_id_or_slug(Caller.of(principal), object_id)
    return ShareTarget(page.id, page.title)


_LOCATORS: Final[Mapping[ShareKind, Callable[[Principal, str], Transaction[ShareTarget]]]] = {
    "run": _run,
    "workflow": _workflow,
    "chat": _chat,
    "page": _page,
}


async def run(database: Database, tenant: Tenant, prediction_id: str) -> Prediction:
    """Return a shared run, whose inputs and outputs may have 64 MB; they are decoded in a thread.

    Raises `NotFound` if it was deleted, refunded or withdrawn, and `TooManyRequests`.
    """
    size = await database.read(run_size(tenant, prediction_id), snapshot=False)
    await loaded_objects.reserve(size, loaded_objects.INLINED_COPIES)
    row = _shown(tenant, await database.read(one("prediction_by_id", id=prediction_id), snapshot=False))
    return await PARSER.run_large(Prediction.stored_size(row), Prediction.from_row, row)


def run_size(tenant: Tenant, prediction_id: str) -> Transaction[int]:
    """Return the size of a shared run; raises `NotFound` if it was deleted, refunded or withdrawn."""
    return int(_shown(tenant, (yield from one("prediction_head", id=prediction_id)))["size"])


def _shown(tenant: Tenant, row: Row | None) -> Row:
    is_there = row is not None and tenant.sees(row["account_id"], row["credential_id"] or "")
    if row is None or not is_there or row["state"] != PredictionState.SUCCEEDED or row["withheld"]:
        raise errors.NotFound("The shared run no longer exists")
    return row


def page(tenant: Tenant, page_id: str) -> Transaction[MemoryPage]:
    """Return a shared page; raises `NotFound` if it was deleted."""
    row = yield from one("page_by_id", account_id=tenant.account_id, id=page_id)
    if row is None or row["deleted_at"] is not None:
        raise errors.NotFound("The shared page no longer exists")
    return pages.of(row)
