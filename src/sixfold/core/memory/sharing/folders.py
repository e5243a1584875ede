"""Folders of the memory that are shared with other accounts and with teams: share, list, find, end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import audit_log, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.organizations import grantees
from sixfold.core.accounts.organizations.grantees import Grantee
from sixfold.core.accounts.tenants import MemoryAccess, Tenant
from sixfold.core.clock import rfc3339
from sixfold.core.database import Query, Row, Transaction, many, one, to_struct
from sixfold.core.memory import limits, slugs
from sixfold.core.memory.sharing import membership

Access = Literal["read", "write"]
ACCESSES: tuple[Access, ...] = ("read", "write")
MAX_SHARED, MAX_RECEIVED = 200, 1000
_MAX_FOLDER = limits.TAG_CHARS - len(membership.PREFIX)
_FIELDS = grantees.FIELDS | {"folder", "access"}
_MAX_TEXT = 200


class FolderShareDraft(msgspec.Struct, frozen=True):
    """A folder to share with an account or a team."""

    folder: str
    grantee: Grantee
    access: Access = "read"

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> FolderShareDraft:
        """Parse the fields of a request; raises `InvalidInput`."""
        unknown = sorted(set(fields) - _FIELDS)
        if unknown:
            raise errors.InvalidInput.of(
                unknown[0], f"Unknown field {unknown[0][:40]!r}: use {', '.join(sorted(_FIELDS))}"
            )
        grantee, folder_path = Grantee.of(fields), fields.get("folder")
        if not any(grantee):
            raise errors.InvalidInput.of(
                "with", "Send the grantee: with (an e-mail address or an organization) or team_id"
            )
        if not isinstance(folder_path, str) or len(folder_path) > _MAX_TEXT:
            raise errors.InvalidInput.of(
                "folder", f"folder must be a string of at most {_MAX_TEXT} characters"
            )
        folder = slugs.normalize(folder_path.strip("/"), "folder")
        if len(folder) > _MAX_FOLDER:
            raise errors.InvalidInput.of(
                "folder", f"folder must be at most {_MAX_FOLDER} characters (got {len(folder)})"
            )
        access = fields.get("access", "read")
        if access not in ACCESSES:
            raise errors.InvalidInput.of("access", "access must be read or write")
        return cls(folder, grantee, access)


class FolderShare(msgspec.Struct, frozen=True):
    """A shared folder; `owner` is the account that shares it, and `grantee` an account or a team."""

    id: str
    account_id: str
    folder: str
    grantee: str
    team: str | None
    may_write: bool
    created_at: int
    owner: str = ""

    @classmethod
    def of(cls, row: Row) -> FolderShare:
        """Build a shared folder from a row."""
        grantee = row["grantee"] or row["organization"] or ""
        return to_struct(cls, row, grantee=grantee, may_write=bool(row["may_write"]))

    @property
    def record(self) -> dict[str, Any]:
        """The shared folder in the form that its owner sees."""
        return {
            "id": self.id,
            "folder": self.folder,
            "with": self.grantee,
            "team": self.team,
            "access": "write" if self.may_write else "read",
            "created_at": rfc3339(self.created_at),
        }

    @property
    def received_record(self) -> dict[str, Any]:
        """The shared folder in the form that a grantee sees."""
        return {**self.record, "owner": self.owner}


def share(principal: Principal, draft: FolderShareDraft) -> Transaction[FolderShare]:
    """Share a folder of a principal's memory, or change the access of an existing share.

    The caller must then call `membership.move_all`. Raises `NotFound` for an unknown account or team, and
    `Forbidden` for a principal that may not share. Raises `Conflict` for the principal's own account, a page
    outside the folder in its collection, a share that a limited key did not create, or too many shares.
    """
    principal.require(rights.MEMORY_EDIT)
    _require_sharing(principal)
    yield from grantees.check(principal.account_id, draft.grantee)
    account_id = principal.account_id
    yield Query("shared_folders_expired_delete", {"account_id": account_id})
    outside = yield from one("collection_outside", **membership.span(account_id, draft.folder))
    if outside is not None:
        raise errors.Conflict(
            f"The page {outside['slug']} is in the collection {membership.collection_of(draft.folder)}: "
            "remove it from the collection first, because the shared folder uses this collection"
        )
    rows = yield Query(
        "shared_folder_put",
        {
            "id": ids.new("folder"),
            "account_id": account_id,
            "folder": draft.folder,
            "grantee": draft.grantee.name,
            "team_id": draft.grantee.team_id,
            "may_write": int(draft.access == "write"),
            "credential_id": principal.credential_id,
            "key_id": principal.sharing_key_id,
            "member_id": principal.member_id,
        },
    )
    if not rows:
        raise errors.Conflict(
            "The folder is already shared with this grantee: this key cannot change the access"
        )
    shared_folders = yield from _of_tenant(principal.tenant.whole)
    if len(shared_folders) > MAX_SHARED:
        raise errors.Conflict(
            f"An account can share at most {MAX_SHARED} folders: end one of the shares first"
        )
    grantee = draft.grantee.name or draft.grantee.team_id
    yield from audit_log.note(account_id, "folder.share", f"{draft.folder} {grantee} {draft.access}"[:300])
    return next(folder for folder in shared_folders if folder.id == rows[0]["id"])


def _require_sharing(principal: Principal) -> None:
    principal.require(rights.MEMORY_WRITE)
    if principal.keyless or principal.scope.collections or principal.memory is not None:
        raise errors.Forbidden("This key may not share folders: it is limited to a part of the memory")
    if principal.role == "member":
        raise errors.Forbidden("Only the owner and the admins of an organization may share its memory")


def of_account(principal: Principal) -> Transaction[tuple[FolderShare, ...]]:
    """Return the folders that a principal shares; a limited key or OAuth client sees only its own shares."""
    return (yield from _of_tenant(principal.tenant))


def _of_tenant(tenant: Tenant) -> Transaction[tuple[FolderShare, ...]]:
    rows = yield from many("shared_folders_of", **tenant.row)
    return tuple(FolderShare.of(row) for row in rows)


def received(principal: Principal, share_id: str = "") -> Transaction[tuple[FolderShare, ...]]:
    """Return the folders that are shared with a principal, or only one of them; none for a limited key."""
    if principal.keyless or principal.scope.collections:
        return ()
    rows = yield from many(
        "shared_folders_received",
        account_id=principal.account_id,
        team_id=principal.team_id or "",
        id=share_id,
        limit=MAX_RECEIVED,
    )
    return tuple(FolderShare.of(row) for row in rows)


def access(principal: Principal, share_id: str) -> Transaction[MemoryAccess]:
    """Return a principal's access to a folder that is shared with the principal; raises `NotFound`."""
    shares = yield from received(principal, share_id)
    if not share_id or not shares:
        raise errors.NotFound(f"The shared folder {share_id[:60]!r} was not found, or is no longer shared")
    share = shares[0]
    other_folders = yield from membership.folders_of(share.account_id)
    return MemoryAccess(
        share.id,
        share.account_id,
        share.folder,
        membership.collection_of(share.folder),
        tuple(membership.collection_of(folder) for folder in other_folders if folder != share.folder),
        share.may_write,
        share.created_at,
    )


def end(principal: Principal, share_id: str) -> Transaction[str]:
    """End the share of a folder immediately and return the folder; raises `NotFound`.

    The caller must then call `membership.move_all`.
    """
    _require_sharing(principal)
    rows = yield Query("shared_folder_end", {"id": share_id, **principal.tenant.row})
    if not rows:
        raise errors.NotFound(f"The shared folder {share_id[:60]!r} was not found")
    folder = str(rows[0]["folder"])
    yield from audit_log.note(principal.account_id, "folder.end", folder)
    return folder
