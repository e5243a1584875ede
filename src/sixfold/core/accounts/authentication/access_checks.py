"""Checks of a key after its request was authenticated: in the transaction of the request, and after its body.

A request is authenticated when it begins. Without another check, a client that delays its body, or sends many
requests, could use its access or create other access after the key was revoked or its member lost a role.
"""

from __future__ import annotations

from sixfold import errors
from sixfold.core.accounts import connections, keys, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.connections import Credential
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Access
from sixfold.core.database import T, Transaction, after


def while_permitted(principal: Principal, transaction: Transaction[T]) -> Transaction[T]:
    """Return a transaction that first checks again the access that the current route declares.

    Raises `Unauthenticated` if the key has ended, and like `Principal.require` and `require_unchanged`. The
    transactions of pages use `login_sessions.while_active` instead.
    """
    return after(_checked(principal, rights.declared.get()), transaction)


def _checked(principal: Principal, access: Access) -> Transaction[None]:
    found = yield from current(principal)
    principal.require_unchanged(found)
    found.require(access)


def current(principal: Principal) -> Transaction[Principal]:
    """Return the principal with its current rights; raises `Unauthenticated` if its key has ended."""
    if principal.key_id is None:
        return principal
    valid = yield from connections.valid({Credential("key", principal.key_id, suspended=True)})
    found = yield from keys.by_id(principal.key_id)
    if found is None or not valid:
        raise errors.Unauthenticated
    return found


def unchanged() -> Transaction[None]:
    """Return a transaction that checks the credential of the current request again.

    It raises `Unauthenticated` if the key or login session has ended, `NotFound` if the shared folder has,
    and `Forbidden` if the rights have changed.
    """
    session = connections.session.get()
    folder, before = connections.shared_folder.get(), connections.authenticated.get()
    if before is not None:
        return _unchanged(before, current(before), folder)
    if session is not None:
        return _unchanged(connections.signed_in.get(), _of_session(session), folder)
    return _unchanged(None, None, folder)


def while_unchanged(transaction: Transaction[T]) -> Transaction[T]:
    """Return a transaction of the current request that first makes the check of `unchanged`."""
    return after(unchanged(), transaction)


def while_valid(principal: Principal, transaction: Transaction[T]) -> Transaction[T]:
    """Return a transaction that checks the credential of a principal first if the current request is late.

    It raises `Unauthenticated` if the key or login session has ended. Work that is not part of a request,
    such as the next step of an accepted run, is not checked.
    """
    if not connections.is_late():
        return transaction
    if principal == connections.signed_in.get():
        return while_unchanged(transaction)
    return after(_valid(principal), transaction)


def _valid(principal: Principal) -> Transaction[None]:
    yield from current(principal)


def _unchanged(
    before: Principal | None, reading: Transaction[Principal] | None, folder: Credential | None
) -> Transaction[None]:
    if reading is not None:
        found = yield from reading
        if before is None:
            raise errors.Unauthenticated(login_sessions.ENDED)
        before.require_unchanged(found)
    if folder is not None and folder not in (yield from connections.valid({folder})):
        raise errors.NotFound


def _of_session(session: Credential) -> Transaction[Principal]:
    signed_in = yield from login_sessions.session_by_hash(bytes.fromhex(session.id))
    if signed_in is None:
        raise errors.Unauthenticated(login_sessions.ENDED)
    return signed_in.principal
