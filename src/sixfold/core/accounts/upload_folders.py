"""Upload folders: unguessable names (128 random bits) in URLs, which are known only to the tenant."""

from __future__ import annotations

import re
import secrets

import msgspec

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction, Value, one

_NAME = re.compile(r"[0-9a-f]{32}")


class UploadFolder(msgspec.Struct, frozen=True):
    """An upload folder's owner: the tenant, and whether its account is the operator's.

    While the account `is_withheld` (suspended or about to be closed), its files are not served.
    """

    tenant: Tenant
    is_operator: bool
    is_withheld: bool = False


def name_of(tenant: Tenant) -> Transaction[str | None]:
    """Return the name of a tenant's folder, or None if it does not exist yet."""
    row = yield from one(
        "credential_folder_of" if tenant.credential_id else "upload_folder_of", **_row(tenant)
    )
    return None if row is None else str(row["name"])


def create(tenant: Tenant) -> Transaction[str]:
    """Return the name of a tenant's folder, creating it if needed."""
    insert = "credential_folder_insert" if tenant.credential_id else "upload_folder_insert"
    yield Query(insert, {"name": secrets.token_hex(16), **_row(tenant)})
    return (yield from name_of(tenant)) or ""


def find(name: str) -> Transaction[UploadFolder | None]:
    row = (yield from one("upload_folder", name=name)) if _NAME.fullmatch(name) else None
    if row is None:
        return None
    tenant = Tenant(row["account_id"], bool(row["keyless"]), row["credential_id"])
    is_withheld = row["suspended_at"] is not None or row["closing_at"] is not None
    return UploadFolder(tenant, row["kind"] == "operator", is_withheld)


def _row(tenant: Tenant) -> dict[str, Value]:
    if tenant.credential_id:
        return tenant.row
    return {"account_id": tenant.account_id, "keyless": int(tenant.keyless)}
