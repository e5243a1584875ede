"""Leaving: an account is closed by its owner, may be kept for some days, and is then erased.

What goes: the address, the password, every key, passkey and session, predictions, files, the memory, posts
and characters, models, requests and the log. What stays is what the books need: the account's id, without a
name, and its entries, holds and payments, without descriptions. Nobody finds a file from the moment of
erasure on; its bytes go with the next sweep, those of the last day a day later. A plan that is paid by card
ends with the wish to leave, so that nothing is taken for the days in between.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from sixfold import errors
from sixfold.core.accounts import accounts, audit_log, credentials, payments
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Transaction, many, now
from sixfold.core.media.ports import BlobStore

_AT_ONCE = 20
_LOG = logging.getLogger("sixfold.leaving")

# In an order in which no row is left without the one that it refers to.
ERASURES = (
    "erase_outbox",
    "erase_gallery_tags",
    "erase_posts",
    "erase_characters",
    "erase_upload_folders",
    "erase_credential_folders",
    "erase_graph_files",
    "erase_graph_outcomes",
    "erase_graph_forgotten",
    "erase_models",
    "erase_calls",
    "erase_responses",
    "erase_standings",
    "erase_live_sessions",
    "erase_predictions",
    "erase_statements",
    "erase_names",
    "erase_vectors",
    "erase_index",
    "erase_changes",
    "erase_timelines",
    "erase_links",
    "erase_collections",
    "erase_tags",
    "erase_redirects",
    "erase_versions",
    "erase_pages",
    "erase_folders",
    "erase_usage",
    "erase_spent_tokens",
    "erase_grants",
    "erase_spending",
    "erase_rates",
    "erase_keys",
    "erase_passkeys",
    "erase_identities",
    "erase_signins",
    "erase_audit",
    "erase_media",
    "erase_descriptions",
    "erase_account",
)
Stop = Callable[[str, Tenant], Awaitable[object]]  # ends something of a tenant, by its id
EndPlan = Callable[[str, str], Awaitable[object]]


def close(account: Account, days: float, token: str = "") -> Transaction[int]:
    """Begin to leave; gives the moment of erasure (epoch µs).

    Keys work no more, programs lose their access, and sessions end but that of `token`.

    Raises `Forbidden` for the operator's account, which is the server's own.
    """
    if account.kind != "customer":
        raise errors.Forbidden("The operator's account is the server's own, and stays")
    moment = (yield from now()) + round(days * DAY_US)
    if not (yield Query("account_deletion_set", {"id": account.id, "closing_at": moment})):
        raise errors.NotFound("There is no such account")
    yield from audit_log.note(account.id, "account.close")
    yield from credentials.end_all(account.id, token)
    return moment


def keep(account_id: str) -> Transaction[None]:
    """Stay after all: keys work again."""
    yield Query("account_deletion_set", {"id": account_id, "closing_at": None})
    yield from audit_log.note(account_id, "account.keep")


def confirm(account: Account, text: object) -> None:
    """Raise `InvalidInput` unless `text` is the account's own address: nobody leaves by accident."""
    if not isinstance(text, str) or text.strip().lower() != account.email:
        raise errors.InvalidInput.of("confirm", "confirm must be the account's own e-mail address")


def erase(account_id: str) -> Transaction[bool]:
    """Erase what belongs to an account that is due; False while it holds money, pays a plan, or was kept."""
    account = yield from accounts.by_id(account_id)
    moment = yield from now()
    held = yield from many("account_deletion_held", account_id=account_id)
    living = yield from many("account_deletion_predictions", account_id=account_id)
    if held or living or account.closing_at is None or account.closing_at > moment:
        return False
    for name in ERASURES:
        yield Query(name, {"account_id": account_id})
    return True


class AccountDeletion:
    """Erases the accounts whose time has come; `cancel`, `hang_up` and `end_plan` end what they still have.

    `end_plan` raises `EngineFailed` or `NotConfigured` where it cannot.
    """

    def __init__(
        self, database: Database, uploads: BlobStore, cancel: Stop, hang_up: Stop, end_plan: EndPlan
    ) -> None:
        self._database = database
        self._uploads = uploads
        self._end_plan = end_plan
        self._stops = {"account_deletion_predictions": cancel, "account_deletion_sessions": hang_up}

    async def sweep(self) -> int:
        """Erase who is due; gives how many. Whose work still ends is erased the next time."""
        for row in await self._database.read(many("account_deletion_plans", limit=_AT_ONCE)):
            await self._unsubscribe(str(row["id"]), str(row["subscription"]))
        due = await self._database.read(many("account_deletion_due", limit=_AT_ONCE))
        erased = 0
        for row in due:
            erased += await self._erase(str(row["id"]))
        return erased

    async def _unsubscribe(self, account_id: str, subscription: str) -> None:
        try:
            await self._end_plan(subscription, account_id)
        except (errors.EngineFailed, errors.NotConfigured) as error:
            _LOG.warning("The card plan of %s, who leaves, is not ended yet: %s", account_id, error)
        else:
            await self._database.write(payments.end_plan(account_id))

    async def _erase(self, account_id: str) -> bool:
        for name, stop in self._stops.items():
            for row in await self._database.read(many(name, account_id=account_id)):
                await stop(str(row["id"]), Tenant(account_id))
        if not await self._database.write(erase(account_id)):
            return False
        keys = [found.key async for found in self._uploads.list(f"{account_id}/")]
        for key in keys:
            await self._uploads.delete(key)
        return True
