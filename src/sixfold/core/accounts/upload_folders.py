"""Names of upload folders in URLs: 128 random bits, which only answers to the folder's tenant hold."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction, Value, one

_NAME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class UploadFolder:
    """Whose folder a name stands for."""

    tenant: Tenant
    is_operator: bool


def name_of(tenant: Tenant) -> Transaction[str | None]:
    """The name of a tenant's folder, once it has one."""
    row = yield from one(
        "credential_folder_of" if tenant.credential_id else "upload_folder_of", **_row(tenant)
    )
    return None if row is None else str(row["name"])


def create(tenant: Tenant) -> Transaction[str]:
    """The name of a tenant's folder, a new one where it has none."""
    insert = "credential_folder_insert" if tenant.credential_id else "upload_folder_insert"
    yield Query(insert, {"name": secrets.token_hex(16), **_row(tenant)})
    return (yield from name_of(tenant)) or ""


def find(name: str) -> Transaction[UploadFolder | None]:
    """The folder that a name stands for, if any."""
    row = (yield from one("upload_folder", name=name)) if _NAME.fullmatch(name) else None
    if row is None:
        return None
    tenant = Tenant(row["account_id"], bool(row["keyless"]), row["credential_id"])
    return UploadFolder(tenant, row["kind"] == "operator")


def _row(tenant: Tenant) -> dict[str, Value]:
    if tenant.credential_id:
        return tenant.row
    return {"account_id": tenant.account_id, "keyless": int(tenant.keyless)}
