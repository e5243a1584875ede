"""Changes of keys: replacement, names, and the creation of keys with other keys."""

from __future__ import annotations

from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import audit_log, keys
from sixfold.core.accounts.keys import Holder, KeyLimits, NewKey, Principal
from sixfold.core.accounts.rights import Rights
from sixfold.core.database import Query, Transaction

_RATES = ("rpm", "tpm")
_MOVED = ("shares_move", "shared_folders_move")


def create_with(
    parent: Principal, scope: KeyLimits, key_rights: Rights, holder: Holder
) -> Transaction[NewKey]:
    """Create a key with the key `parent`; it ends with that key, and both count against its rates.

    Raises `BadRequest` if the rates differ from those of a limited `parent`, and like `keys.create`.
    """
    rates = {name: getattr(parent.scope, name) for name in _RATES}
    is_limited = any(rate is not None for rate in rates.values())
    if is_limited:
        for name, rate in rates.items():
            if getattr(scope, name) not in (None, rate):
                allowed = f"{rate} or omitted" if rate else "omitted"
                raise errors.BadRequest(
                    f"{name} must be {allowed}: the new key shares the rate limits of the key that creates it"
                )
        scope = replace(scope, **rates)
    origin = holder._replace(
        parent_id=parent.key_id,
        rates_id=parent.rate_id if is_limited else None,
        creator_member_id=parent.member_id,
    )
    key = yield from keys.create(parent.account_id, scope, granted=key_rights, holder=origin)
    yield from keys.end_derived()
    return key


def roll(account_id: str, key_id: str, member_id: str | None = None, keep_us: int = 0) -> Transaction[NewKey]:
    """Replace a key: create one with a new secret, and end the old key after `keep_us` µs.

    The new key has the same name, rights, limits, guardrail and cost alerts. Both count against the same
    budgets and rates. Keys created with the old key end with it, as does what it has shared; with `keep_us`,
    the shares of a key with `account.read` end with the new key instead. The old key must belong to the
    member `member_id`; if that is None, it must not belong to a member. Raises `NotFound`.
    """
    new = NewKey(ids.new("key"), ids.secret("sf"))
    params = {"id": key_id, "account_id": account_id, "new_id": new.id}
    secret = {"hash": keys.hash_of(new.api_key), "hint": new.api_key[-4:], "member_id": member_id or ""}
    if not (yield Query("key_copy", {**params, **secret})):
        raise errors.NotFound(f"Key {key_id[:60]} not found, or already revoked")
    yield Query("key_guardrail_copy", params)
    yield Query("key_alerts_move", params)
    yield from audit_log.note(account_id, "key.roll", f"{key_id}, {new.id}")
    if keep_us:
        for query in _MOVED:
            yield Query(query, params)
        yield Query("key_expire", {"id": key_id, "life": keep_us})
        yield from keys.end_derived()
    else:
        yield from keys.revoke(key_id)
    return new


def rename(account_id: str, key_id: str, name: str) -> Transaction[None]:
    """Change the name of a key; raises `NotFound`, and `BadRequest` if the name is too long."""
    params = {"id": key_id, "account_id": account_id, "name": keys.checked_name(name)}
    if not (yield Query("key_rename", params)):
        raise errors.NotFound(f"Key {key_id[:60]} not found, or already revoked")
