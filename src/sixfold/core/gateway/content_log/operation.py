"""Operators' changes of the guardrail and the content log of an account; each change is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.accounts import audit_log
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions, customers
from sixfold.core.database import Transaction
from sixfold.core.gateway.content_log import storage as contents
from sixfold.core.gateway.guardrails import models, storage
from sixfold.core.gateway.guardrails.models import Guardrail

MAX_KEYS = 100  # that a page lists


class AccountContent(msgspec.Struct, frozen=True):
    """The guardrail of an account or a key, the first keys with one, and the days of the content log."""

    guardrail: Guardrail | None
    keys: tuple[str, ...]
    log_days: int


def content_of(account_id: str, key_id: str = "") -> Transaction[AccountContent]:
    """Return the settings of an account, or of one of its keys, for the content of its calls."""
    guardrail, _ = yield from storage.stored_guardrail(account_id, key_id)
    own_keys = yield from storage.keys_with_guardrail(account_id, MAX_KEYS)
    return AccountContent(guardrail, own_keys, (yield from contents.days_of(account_id)))


def set_guardrail(
    actor: Principal, account_id: str, fields: Mapping[str, Any], key_id: str = "", *, exempts: bool = False
) -> Transaction[None]:
    """Set the guardrail of an account, or of one of its keys; raises `InvalidInput` and `NotFound`.

    A hook without a URL keeps the current URL, and ends with the role of the member who set that URL. A
    guardrail without an effect, which exempts from the operator's or the account's, requires `exempts`.
    """
    account = yield from customers.find(account_id)
    before, setter = yield from storage.stored_guardrail(account.id, key_id)
    values, member_id = dict(fields), None
    hook = values.get("hook")
    if hook is not None and not hook["url"]:
        earlier = None if before is None else before.hook
        values["hook"] = None if earlier is None else {**hook, "url": earlier.url}
        member_id = setter
    guardrail = models.parse(values)
    if guardrail.is_empty and not exempts:
        raise errors.InvalidInput.of(
            "mask", "Choose what to mask or enter an endpoint; otherwise, exempt the account or key"
        )
    yield from storage.set_guardrail(account.id, key_id, guardrail, member_id)
    yield from audit_log.note(account.id, "guardrail.set", key_id)
    changes = _described(before, key_id), _described(guardrail, key_id)
    yield actions.note(actor, "guardrail.set", account.id, *changes)


def remove_guardrail(actor: Principal, account_id: str, key_id: str = "") -> Transaction[None]:
    """Remove the guardrail of an account, or of one of its keys; raises `NotFound`."""
    account = yield from customers.find(account_id)
    before, _ = yield from storage.stored_guardrail(account.id, key_id)
    yield from storage.remove_guardrail(account.id, key_id)
    yield from audit_log.note(account.id, "guardrail.remove", key_id)
    yield actions.note(actor, "guardrail.remove", account.id, _described(before, key_id))


def set_log_days(actor: Principal, account_id: str, days: int) -> Transaction[None]:
    """Set the days of the content log of an account, 0 for off; raises `InvalidInput` and `NotFound`."""
    account = yield from customers.find(account_id)
    before = yield from contents.days_of(account.id)
    yield from contents.set_days(account.id, days)
    yield actions.note(actor, "content.log", account.id, {"days": before}, {"days": days})


def _described(guardrail: Guardrail | None, key_id: str) -> dict[str, Any] | None:
    if guardrail is None:
        return None
    hook, of_key = guardrail.hook, {"key": key_id} if key_id else {}
    checks = {} if hook is None else {"hook": actions.url_origin(hook.url), "stages": " ".join(hook.stages)}
    return {
        **of_key,
        "mask": " ".join(guardrail.mask) or "nothing",
        "mask_responses": guardrail.mask_responses,
        **checks,
    }
