"""Account deletion: an owner closes an account, which is kept for some days and then erased.

Erasure deletes the e-mail address, password, keys, passkeys, sessions, predictions, files, memory, posts,
characters, models, gateway calls with their contents, guardrails and audit log. The ledger keeps the id of
the account without a name, and its entries, holds and payments without descriptions. Records in the archive
are erased by the next sweep of the archive. A file cannot be found from the moment of erasure on; its bytes
are deleted by the next sweep, or a day later if they were stored within the last day. A plan paid by card
ends when the account is closed, and the remaining days are not charged.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from sixfold import errors
from sixfold.core.accounts import accounts, audit_log, credentials, keys, payments
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import oauth
from sixfold.core.accounts.organizations import organizations
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Transaction, many, now
from sixfold.core.media.ports import BlobStore

_BATCH = 20
_LOG = logging.getLogger("sixfold.leaving")

# Ordered so that a row is deleted before the row that it refers to.
ERASURES = (
    "erase_outbox",
    "erase_shares",
    "erase_shared_folders",
    "erase_folders_leaving",
    "erase_gallery_tags",
    "erase_posts",
    "erase_characters",
    "erase_upload_folders",
    "erase_credential_folders",
    "erase_graph_files",
    "erase_graph_outcomes",
    "erase_graph_sources",
    "erase_graph_forgotten",
    "erase_models",
    "erase_calls",
    "erase_responses",
    "erase_vector_store_chunks",
    "erase_vector_store_files",
    "erase_vector_store_batches",
    "erase_vector_stores",
    "erase_batch_lines",
    "erase_batches",
    "erase_files",
    "erase_file_parts",
    "erase_file_uploads",
    "erase_conversations",
    "erase_objects",
    "erase_standings",
    "erase_live_sessions",
    "erase_predictions",
    "erase_replies",
    "erase_storage_usage",
    "erase_statements",
    "erase_names",
    "erase_vectors",
    "erase_index",
    "erase_changes",
    "erase_memory_batch_pages",
    "erase_memory_batches",
    "erase_timelines",
    "erase_links",
    "erase_collections",
    "erase_tags",
    "erase_redirects",
    "erase_page_files",
    "erase_versions",
    "erase_pages",
    "erase_folders",
    "erase_usage",
    "erase_spent_tokens",
    "erase_grants",
    "erase_spending",
    "erase_rates",
    "erase_invitations",
    "erase_members",
    "erase_former_members",
    "erase_teams",
    "erase_guardrails",
    "erase_alerts",
    "erase_content_log",
    "erase_content_logging",
    "erase_keys",
    "erase_passkeys",
    "erase_identities",
    "erase_signins",
    "erase_audit",
    "erase_archived",
    "erase_media",
    "erase_descriptions",
    "erase_account",
)
# Ends a prediction or session of a tenant by its id.
Stop = Callable[[str, Tenant], Awaitable[object]]
EndPlan = Callable[[str, str], Awaitable[object]]


def close(account: Account, days: float, token: str = "", *, by_operator: bool = False) -> Transaction[int]:
    """Close an account for `days` and return the time of its erasure (epoch µs).

    API keys are disabled, OAuth clients lose their access, and all shares and sessions end, including those
    of members; only the session of `token` continues. The user leaves their organizations. Raises `Forbidden`
    for the operator's account, and `Conflict` for a user who owns an organization, or whose account an
    operator has closed. If an operator closes an account that its user has closed, an earlier time of the
    user remains.
    """
    if account.kind != "customer":
        raise errors.Forbidden("The operator's account cannot be deleted")
    erased_at = (yield from now()) + round(days * DAY_US)
    if by_operator and account.closing_at:
        erased_at = min(erased_at, account.closing_at)
    if not (yield from _set_erasure(account.id, erased_at, by_operator=by_operator)):
        raise errors.NotFound("Account not found")
    yield from audit_log.note(account.id, "account.close")
    for query in ("erase_shares", "erase_shared_folders"):
        yield Query(query, {"account_id": account.id})
    if account.has_sign_in:
        yield from organizations.leave_all(account.id)
    yield Query("members_sessions_end", {"account_id": account.id, "but": keys.hash_of(token)})
    yield from credentials.end_all(account.id, token)
    yield from oauth.end_of_members(account.id)
    return erased_at


def reopen(account_id: str, *, by_operator: bool = False) -> Transaction[None]:
    """Reopen a closed account; its keys are valid again.

    Raises `Conflict` for a user whose account an operator has closed.
    """
    yield from _set_erasure(account_id, None, by_operator=by_operator)
    yield from audit_log.note(account_id, "account.keep")


def _set_erasure(account_id: str, erased_at: int | None, *, by_operator: bool) -> Transaction[bool]:
    """Set or clear the time of an account's erasure; return False if the account cannot be erased."""
    params = {"id": account_id, "closing_at": erased_at, "by_operator": int(by_operator)}
    if (yield Query("account_deletion_set", params)):
        return True
    account = yield from accounts.by_id(account_id)
    if account.closed_by_operator and not by_operator:
        raise errors.Conflict(
            "The operator has closed this account: only an operator can cancel its deletion"
        )
    return False


def confirm(account: Account, text: object) -> None:
    """Raise `InvalidInput` unless `text` is the account's e-mail address or handle, as a confirmation."""
    if not isinstance(text, str) or text.strip().lower() != account.email:
        raise errors.InvalidInput.of("confirm", "confirm must be the e-mail address of the account")


def erase(account_id: str) -> Transaction[bool]:
    """Erase an account that is due; return False if it is not due.

    An account is not due while it has pending holds or unfinished predictions, or after it was reopened.
    """
    account = yield from accounts.by_id(account_id)
    current = yield from now()
    holds = yield from many("account_deletion_held", account_id=account_id)
    unfinished = yield from many("account_deletion_predictions", account_id=account_id)
    if holds or unfinished or account.closing_at is None or account.closing_at > current:
        return False
    for name in ERASURES:
        yield Query(name, {"account_id": account_id})
    return True


class AccountDeletion:
    """Erases accounts that are due.

    `cancel` and `hang_up` end predictions and sessions by their ids; `end_plan` ends a subscription and
    raises `EngineFailed` or `NotConfigured` if that fails.
    """

    def __init__(
        self, database: Database, uploads: BlobStore, cancel: Stop, hang_up: Stop, end_plan: EndPlan
    ) -> None:
        self._database = database
        self._uploads = uploads
        self._end_plan = end_plan
        self._stops = {"account_deletion_predictions": cancel, "account_deletion_sessions": hang_up}

    async def sweep(self) -> int:
        """Erase accounts that are due and return their number; accounts with unfinished work remain."""
        for row in await self._database.read(many("account_deletion_plans", limit=_BATCH)):
            await self._unsubscribe(str(row["id"]), str(row["subscription"]))
        due = await self._database.read(many("account_deletion_due", limit=_BATCH))
        erased = 0
        for row in due:
            erased += await self._erase(str(row["id"]))
        return erased

    async def _unsubscribe(self, account_id: str, subscription: str) -> None:
        try:
            await self._end_plan(subscription, account_id)
        except (errors.EngineFailed, errors.NotConfigured) as error:
            _LOG.warning(
                "the card plan of the closed account %s could not be canceled; retrying later: %s",
                account_id,
                error,
            )
        else:
            await self._database.write(payments.end_plan(account_id))

    async def _erase(self, account_id: str) -> bool:
        for name, stop in self._stops.items():
            for row in await self._database.read(many(name, account_id=account_id)):
                await stop(str(row["id"]), Tenant(account_id))
        if not await self._database.write(erase(account_id)):
            return False
        keys = [info.key async for info in self._uploads.list(f"{account_id}/")]
        for key in keys:
            await self._uploads.delete(key)
        return True
