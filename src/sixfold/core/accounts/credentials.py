"""Revocation of credentials and of all credentials derived from them, in one transaction.

A login session may have granted access to OAuth clients; each grant has refresh tokens and one key at a time.
A key with `account.manage` may have created other keys.
Open connections are closed by `connections`, on every server.
"""

from __future__ import annotations

from collections.abc import Mapping

from sixfold.core.accounts import accounts, audit_log, idempotency, keys
from sixfold.core.accounts.authentication import login_sessions, oauth
from sixfold.core.accounts.limits import rate_limits
from sixfold.core.accounts.organizations import invitations
from sixfold.core.database import Query, Transaction, many, now


def end_all(account_id: str, token: str = "", *, with_keys: bool = False) -> Transaction[None]:
    """End all login sessions, sign-in links and OAuth grants of an account, except the session of `token`.

    This includes the account's grants in organizations. If `with_keys` is set, its API keys are revoked and
    its invitations end as well, also those in organizations, with keys of teams that it has created.
    """
    yield from login_sessions.end_others(account_id, token)
    yield from oauth.end_all(account_id)
    for row in (yield from many("person_grants_end", person_id=account_id)):
        if row["key_id"]:
            yield Query("key_revoke", {"id": row["key_id"]})
    if with_keys:
        yield Query("person_keys_revoke", {"person_id": account_id})
        yield Query("person_invitations_end", {"person_id": account_id})
        revoked = yield Query("keys_revoke", {"account_id": account_id})
        yield from keys.end_derived()
        yield from audit_log.note(account_id, "key.revoke_all", str(len(revoked)))


# The kinds of credentials that `end_everything` ends, and the query for each.
_ENDS: Mapping[str, str] = {
    "keys": "access_keys_revoke",
    "programs": "access_grants_end",
    "sign_ins": "access_sign_ins_end",
    "invitations": "access_invitations_end",
    "shares": "access_shares_end",
    "shared_folders": "access_folders_end",
}


def end_everything() -> Transaction[Mapping[str, int]]:
    """End every credential, invitation and share of all accounts; return the number of each.

    Members, passwords and passkeys are not changed.
    """
    counts: dict[str, int] = {}
    for name, query in _ENDS.items():
        counts[name] = len((yield Query(query, {})))
    operator = yield from accounts.operator()
    if operator is not None:
        yield from audit_log.note(operator.id, "access.end_all", str(sum(counts.values())))
    return counts


def change_password(
    account_id: str, password_hash: str, token: str = "", *, with_keys: bool = False
) -> Transaction[None]:
    """Set a new password hash and end all credentials except the session of `token` (see `end_all`)."""
    yield from accounts.set_password_hash(account_id, password_hash)
    yield from end_all(account_id, token, with_keys=with_keys)


def delete_expired() -> Transaction[None]:
    """Delete expired sessions, links, grants, invitations, challenges, stored responses and rates."""
    yield from idempotency.sweep((yield from now()))
    yield from login_sessions.sweep()
    yield from oauth.sweep()
    yield from rate_limits.sweep()
    yield from invitations.sweep()
    # A server of the previous version does not end the keys that a revoked key has created.
    yield from keys.end_derived()
