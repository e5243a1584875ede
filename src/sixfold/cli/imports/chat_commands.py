"""`import chatgpt` and `import openwebui`: import chats and documents into accounts."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.cli import database_access
from sixfold.cli.imports import chatgpt, file_limits, openwebui
from sixfold.cli.imports import documents as document_import
from sixfold.cli.imports.chat_files import ReadExport, UnreadableExport
from sixfold.cli.imports.documents import DocumentCounts
from sixfold.cli.imports.litellm import Omission
from sixfold.cli.terminal import CommandError, Spinner, TerminalStyle, put_json
from sixfold.core.accounts import accounts
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Transaction
from sixfold.core.gateway import policy as policies
from sixfold.core.gateway.conversations import imports
from sixfold.core.gateway.conversations.imports import ImportedChat
from sixfold.core.gateway.policy import GatewayPolicy
from sixfold.settings import Settings

# Number of chats that are stored in one transaction.
_BATCH = 50
_Chats = Sequence[tuple[str, ImportedChat]]


def import_chatgpt(arguments: argparse.Namespace) -> None:
    _run(arguments, _read(chatgpt.read, arguments.file), arguments.account)


def import_openwebui(arguments: argparse.Namespace) -> None:
    uploads = Path(arguments.uploads) if arguments.uploads else None
    if uploads is not None and not uploads.is_dir():
        raise CommandError(f"The folder {uploads} does not exist")
    export = _read(partial(openwebui.read, uploads=uploads), arguments.file)
    if not export.users and not arguments.account:
        raise CommandError(
            "A chat export does not contain users: add --account EMAIL, the account for the chats"
        )
    _run(arguments, export, arguments.account)


def _read(read: Any, file: str) -> ReadExport:
    try:
        with file_limits.limited_memory(file):
            return read(Path(file))
    except UnreadableExport as error:
        raise CommandError(str(error)) from error


def _run(arguments: argparse.Namespace, export: ReadExport, account: str | None) -> None:
    chats = [(email or account or "", chat) for email, chat in export.chats]
    created: list[str] = []
    skipped = added = 0
    documents = DocumentCounts()
    if arguments.write:
        server_settings = database_access.settings_of(arguments)
        policy = policies.parse(server_settings.tables.get("gateway", {}))
        created = database_access.write(server_settings, _create_accounts(export))
        for start in range(0, len(chats), _BATCH):
            batch = _store(policy, chats[start : start + _BATCH], export)
            new, before = database_access.write(server_settings, batch)
            added, skipped = added + new, skipped + before
        documents = _store_documents(server_settings, export)
        skipped += documents.before
    counts = {
        "accounts": len(created),
        "chats": added,
        "documents": documents.added,
        "imported_before": skipped,
    }
    if arguments.json:
        rows = [{"setting": row.setting, "reason": row.reason} for row in export.omitted]
        found_documents = len(export.documents)
        totals = {"users": export.users, "found": len(chats), "found_documents": found_documents}
        put_json({**totals, **counts, "written": bool(arguments.write), "not_imported": rows})
        return
    paint = TerminalStyle()
    found_rows = [
        ("users in the file", f"{len(export.users):,}"),
        ("chats in the file", f"{len(chats):,}"),
        ("documents in the file", f"{len(export.documents):,}"),
    ]
    new_rows = [
        ("new accounts", f"{len(created):,}"),
        ("new chats", f"{added:,}"),
        ("new documents", f"{documents.added:,}"),
        ("imported before", f"{skipped:,}"),
    ]
    paint.rows([*found_rows, *(new_rows if arguments.write else ())])
    if export.omitted:
        paint.line()
        paint.table(("not imported", "reason"), [(row.setting, row.reason) for row in export.omitted])
    if not arguments.write:
        paint.line()
        paint.paragraph("Nothing was changed. Add --write to create the accounts, chats and documents.")


def _store_documents(server_settings: Settings, export: ReadExport) -> DocumentCounts:
    if not export.documents:
        return DocumentCounts()
    with database_access.understood(), Spinner("documents") as bar:
        return asyncio.run(document_import.store(server_settings, export, bar.count))


def _create_accounts(export: ReadExport) -> Transaction[list[str]]:
    """Create accounts without credit for users that do not have one; return the new e-mail addresses."""
    created: list[str] = []
    for email in export.users:
        try:
            yield from accounts.create(email)
        except errors.Conflict:
            continue
        except errors.BadRequest as error:
            export.omit(email, error.message)
            continue
        created.append(email)
    return created


def _store(policy: GatewayPolicy, chats: _Chats, export: ReadExport) -> Transaction[tuple[int, int]]:
    """Store chats; return how many were new and how many had been imported before."""
    omitted: list[Omission] = []
    new = skipped = 0
    for email, chat in chats:
        try:
            account = yield from accounts.by_email(email)
            is_new = yield from imports.store(policy, Tenant(account.id), chat)
        except (errors.TooLarge, errors.NotFound) as error:
            omitted.append(Omission(chat.title[:100], error.message))
            continue
        new, skipped = new + is_new, skipped + (not is_new)
    export.omitted += omitted
    return new, skipped
