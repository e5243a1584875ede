"""`memory`: search, read, write, import, export and sync pages on a server."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote, unquote, urlencode

from sixfold.cli import server_lock
from sixfold.cli.client import CliResponse, Document, ServerClient
from sixfold.cli.memory import folder_archive
from sixfold.cli.sync import files as sync_files
from sixfold.cli.sync.engine import FolderSync
from sixfold.cli.sync.state import RemoteFile, RemoteListing, SyncConflict, SyncRefusal
from sixfold.cli.terminal import CommandError, CountedProgress, Spinner, TerminalStyle, put_json
from sixfold.core.documents import KINDS
from sixfold.core.humanize import size
from sixfold.core.memory.import_export import archives, attachments

_JSON = {"Content-Type": "application/json"}
_FILE = {"Content-Type": "text/markdown"}
_TAG = re.compile(r'(?:W/)?"(\d{1,18})"', re.ASCII)
_PAGE = 500
# With --watch, the pause is at least the duration of a sync multiplied by this factor.
_REST = 5
_VERBS = {
    "sent": "↑",
    "received": "↓",
    "removed_here": "✕ here",
    "removed_there": "✕ there",
    "renamed": "→",
    "merged": "↕",
    "conflicts": "! both sides changed; the local text is saved as",
    "problems": "!",
}


def search(arguments: argparse.Namespace) -> int:
    """Run `memory search`: print the pages that match a query."""
    client = ServerClient.of(arguments)
    body = {
        "query": " ".join(arguments.query),
        "limit": arguments.limit,
        "tags": arguments.tag,
        "types": arguments.type,
        "collections": arguments.collection,
        "mode": arguments.mode,
        "explain": arguments.explain,
    }
    response = client.post("/api/search", body)
    if arguments.json:
        put_json(response)
        return 0
    paint = TerminalStyle()
    for hit in response["results"]:
        score = paint.dim(format(hit["score"], ".3f"))
        paint.line(f"  {paint.bold(hit['slug'])}{_title(hit)}  {score}")
        if hit["snippet"]:
            paint.line(f"    {' '.join(hit['snippet'].split())}")
        if hit.get("citation"):
            paint.line(paint.dim(f"    {hit['citation']}"))
        if hit.get("explain"):
            paint.line(paint.dim(f"    {hit['explain']}"))
    if not response["results"]:
        paint.line("  No pages found")
    return 0


def context(arguments: argparse.Namespace) -> int:
    """Run `memory context`: print excerpts for a model."""
    body = {
        "query": " ".join(arguments.query),
        "tokens": arguments.tokens,
        "tags": arguments.tag,
        "types": arguments.type,
        "collections": arguments.collection,
    }
    response = ServerClient.of(arguments).post("/api/context", body)
    if arguments.json:
        put_json(response)
    else:
        sys.stdout.write(f"{response['text']}\n")
    return 0


def read(arguments: argparse.Namespace) -> int:
    """Run `memory read`: print a page."""
    client = ServerClient.of(arguments)
    query = f"?{urlencode({'as_of': arguments.as_of})}" if arguments.as_of else ""
    path = f"/api/pages/{quote(arguments.slug)}{query}"
    if arguments.json:
        put_json(client.document(client.ask("GET", path), path))
        return 0
    response = client.ask("GET", path, headers={"Accept": "text/markdown"})
    if response.status >= 400:
        raise CommandError(client.reason(response, path))
    if sys.stdout.isatty():
        TerminalStyle().line(response.data.decode(errors="replace").removesuffix("\n"))
    else:
        sys.stdout.buffer.write(response.data)
    return 0


def write(arguments: argparse.Namespace) -> int:
    """Run `memory write`: create or replace a page."""
    client = ServerClient.of(arguments)
    document = {
        "slug": arguments.slug,
        "body": text_of(arguments.file) if arguments.body is None else arguments.body,
        "title": arguments.title,
        "type": arguments.type,
        "tags": arguments.tag,
        "collections": arguments.collection,
        "overwrite": arguments.overwrite,
        "if_version": arguments.if_version,
    }
    return _show(client.post("/api/pages", document), arguments)


def edit(arguments: argparse.Namespace) -> int:
    """Run `memory edit`: apply one change to a page."""
    client = ServerClient.of(arguments)
    change = {**_edit(arguments), "if_version": arguments.if_version}
    return _show(_send_json(client, "PATCH", f"/api/pages/{quote(arguments.slug)}", change), arguments)


def _edit(arguments: argparse.Namespace) -> Document:
    changes: list[Document] = []
    for name in ("append", "prepend"):
        text = getattr(arguments, name)
        if text is not None:
            changes.append({"operation": name, "content": _inline(text)})
    if arguments.find is not None:
        replaced = {"find": arguments.find, "replace": arguments.replace or "", "all": arguments.all}
        changes.append({"operation": "replace_text", **replaced})
    if arguments.section is not None:
        content = _inline(arguments.content or "")
        changes.append({"operation": "replace_section", "section": arguments.section, "content": content})
    values = {name: getattr(arguments, name) for name in ("title", "type")}
    fields = {name: value for name, value in values.items() if value is not None}
    if fields:
        changes.append({"operation": "set_fields", "fields": fields})
    if arguments.rename is not None:
        changes.append({"operation": "rename", "slug": arguments.rename})
    if len(changes) != 1:
        raise CommandError("Specify exactly one change, such as --append TEXT or --find OLD --replace NEW")
    return changes[0]


def tag(arguments: argparse.Namespace) -> int:
    """Run `memory tag`: add, remove or print the tags of a page."""
    client = ServerClient.of(arguments)
    path = f"/api/tags/{quote(arguments.slug)}"
    tags = client.get(path) if not arguments.tags and not arguments.remove else {}
    version = arguments.if_version
    if arguments.tags:
        tags = client.post(path, {"tags": arguments.tags, "if_version": version})
        # The first request has checked and changed the version.
        version = None
    if arguments.remove:
        tags = _send_json(client, "DELETE", path, {"tags": arguments.remove, "if_version": version})
    if arguments.json:
        put_json(tags)
    else:
        TerminalStyle().line(f"  {' '.join(tags['tags']) or 'no tags'}")
    return 0


def link(arguments: argparse.Namespace) -> int:
    """Run `memory link`: add, remove or print the links of a page."""
    client = ServerClient.of(arguments)
    path = f"/api/links/{quote(arguments.slug)}"
    end = {"to": arguments.to, "type": arguments.type, "if_version": arguments.if_version}
    if arguments.to is None:
        response = client.get(path)
        response |= client.get(f"/api/backlinks/{quote(arguments.slug)}")
    elif arguments.remove:
        response = _send_json(client, "DELETE", path, end)
    else:
        response = client.post(path, {**end, "context": arguments.context})
    if arguments.json:
        put_json(response)
        return 0
    paint = TerminalStyle()
    rows = [(f"{row['type']} →", row["to"], _state(row), row["context"]) for row in response["links"]]
    rows += [
        (f"← {row['type']}", row["from"], _state(row), row["context"])
        for row in response.get("backlinks", [])
    ]
    if rows:
        paint.table(("link", "page", "", "context"), rows)
    else:
        paint.line("  no links")
    return 0


def _state(row: Document) -> str:
    return (
        "no page yet"
        if row.get("resolved") is False
        else ""
        if row["origin"] == "explicit"
        else row["origin"]
    )


def list_pages(arguments: argparse.Namespace) -> int:
    """Run `memory list`: print pages by slug."""
    client = ServerClient.of(arguments)
    if arguments.limit < 1:
        raise CommandError(f"--limit must be at least 1 (got {arguments.limit})")
    filters = {name: getattr(arguments, name) for name in ("prefix", "tag", "type", "collection")}
    pages = _pages(client, {name: value for name, value in filters.items() if value})
    rows = list(itertools.islice(pages, arguments.limit))
    if arguments.json:
        put_json({"pages": rows})
        return 0
    paint = TerminalStyle()
    if rows:
        table = [(row["slug"], row["type"], row["updated_at"][:16], row["title"]) for row in rows]
        paint.table(("page", "type", "changed", "title"), table)
        if next(pages, None) is not None:
            paint.line(paint.dim(f"  There are more pages: --limit N lists more than {arguments.limit}"))
    else:
        paint.line("  no pages")
    return 0


def _pages(client: ServerClient, filters: Document) -> Iterator[Document]:
    for response in client.lists(f"/api/pages?{urlencode({**filters, 'limit': _PAGE})}"):
        yield from response["pages"]


def import_files(arguments: argparse.Namespace) -> int:
    """Run `memory import`; return 1 if a file was rejected."""
    client = ServerClient.of(arguments)
    source = Path(arguments.source)
    packed = folder_archive.opened(source, markdown_only=arguments.markdown_only)
    with packed as sent, Spinner("import", sent.size) as progress:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(sent.size)}
        body = cast("IO[bytes]", CountedProgress(sent.file, progress))
        path = _import_path(source, arguments)
        report = client.document(client.ask("POST", path, body, headers), path)
    report["errors"] += [{"path": name, "error": folder_archive.OMITTED} for name in sent.omitted]
    if arguments.json:
        put_json(report)
    else:
        paint = TerminalStyle()
        paint.line(f"  {report['created']} created, {report['updated']} updated, {report['skipped']} skipped")
        for row in report.get("documents", []):
            state = "1 page" if row["parts"] == 1 else f"{row['parts']} pages"
            paint.line(f"  {row['slug']}{_title(row)}  {state if row['changed'] else 'unchanged'}")
        for path in report["left_out"]:
            paint.line(paint.dim(f"  left out: {path} ({attachments.why_left_out(path)})"))
        for row in report["errors"]:
            paint.line(f"  {row['path']} {row['error']}")
    return 1 if report["errors"] else 0


def _import_path(source: Path, arguments: argparse.Namespace) -> str:
    if arguments.markdown_only:
        return "/api/import"
    # A file with another suffix is uploaded as an archive.
    is_document = not source.is_dir() and (
        source.suffix.lower() in KINDS or archives.is_attachment(source.name)
    )
    name = source.name if is_document else f"{source.name}.zip"
    fields = [("name", name)] + ([("folder", arguments.folder)] if arguments.folder else [])
    fields += [("tags", tag) for tag in arguments.tag]
    fields += [("collections", collection) for collection in arguments.collection]
    return f"/api/documents?{urlencode(fields)}"


def export(arguments: argparse.Namespace) -> int:
    """Run `memory export`: download all pages as a zip."""
    path = f"/api/export?format={arguments.format}"
    length = ServerClient.of(arguments).download(path, Path(arguments.file))
    if arguments.json:
        put_json({"file": arguments.file, "bytes": length})
    else:
        TerminalStyle().line(f"  {arguments.file}  {size(length)}")
    return 0


# -- sync ----------------------------------------------------------------------------------------


def sync(arguments: argparse.Namespace) -> int:
    """Run `memory sync`; return 1 if a file was rejected."""
    client = ServerClient.of(arguments)
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    paint = TerminalStyle(sys.stderr if arguments.json else sys.stdout)

    def report_change(verb: str, text: str) -> None:
        paint.line(f"  {_VERBS[verb]} {text}")

    with _locked(folder):
        work = FolderSync(
            folder, ServerMemory(client), client.origin, None if arguments.json else report_change
        )
        report = work.run()
        if arguments.json:
            put_json(report.plain())
        elif not report:
            paint.line("  Both sides are equal")
        duration, problem = 0.0, ""
        while arguments.watch:
            time.sleep(max(0.2, arguments.interval, duration * _REST))
            began = time.monotonic()
            try:
                report = work.run()
            except CommandError as error:
                # The server may be unavailable for a while; report it once.
                if problem != str(error):
                    problem = str(error)
                    paint.line(f"  {problem}")
                continue
            duration, problem = time.monotonic() - began, ""
            if arguments.json and (changes := work.changes()):
                put_json(changes.plain())
    return 1 if report.problems else 0


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder, because concurrent syncs would see each other's unfinished steps."""
    state_folder = folder / sync_files.FOLDER
    sync_files.make_state_folder(state_folder)
    # The lock of a foreign folder may be a link to a file elsewhere, which must not be emptied.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(state_folder / "lock", flags, 0o600)
    except OSError as error:
        raise CommandError(
            f"{state_folder / 'lock'} cannot be opened ({error.strerror}): remove it"
        ) from error
    with os.fdopen(descriptor, "w") as file:
        if not server_lock.take_file_lock(file.fileno()):
            raise CommandError(f"Another sync of {folder} is running")
        yield


class ServerMemory:
    """The memory of a server as the remote side of a sync."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client

    def list_pages(self) -> dict[str, RemoteListing]:
        # The page of an image would become a Markdown file beside the image.
        return {
            page["slug"]: RemoteListing(page["version"], page["id"])
            for page in _pages(self._client, {})
            if page["type"] != attachments.PAGE_TYPE
        }

    def fetch(self, slug: str) -> RemoteFile | None:
        response = self._request("GET", slug, None, {"Accept": "text/markdown"})
        # The page was deleted or renamed.
        if response.status != 200:
            return None
        return RemoteFile(
            _version(response), response.data, unquote(response.headers.get("x-sixfold-path", ""))
        )

    def version(self, slug: str, number: int) -> bytes | None:
        path = f"/api/versions/{quote(slug)}?version={number}"
        response = self._client.ask("GET", path, None, {"Accept": "text/markdown"})
        return response.data if response.status == 200 else None

    def store(self, slug: str, data: bytes, version: int | None, path: str) -> int:
        """Write a page and return its new version."""
        guard = {"If-None-Match": "*"} if version is None else {"If-Match": f'"{version}"'}
        return _version(self._request("PUT", slug, data, {**_FILE, **guard, **_origin(path)}))

    def remove(self, slug: str, version: int) -> None:
        """Delete a page if it is at `version`; raises `SyncConflict` if it changed or no longer exists."""
        response = self._request("DELETE", slug, None, {"If-Match": f'"{version}"'})
        if response.status == 404:
            raise SyncConflict

    def rename(self, slug: str, to: str, version: int, path: str) -> int:
        change = json.dumps({"operation": "rename", "slug": to}).encode()
        guard = {"If-Match": f'"{version}"'}
        response = self._request("PATCH", slug, change, {**_JSON, **guard, **_origin(path)})
        if response.status == 404:
            raise SyncConflict
        return _version(response)

    def _request(self, method: str, slug: str, body: bytes | None, headers: dict[str, str]) -> CliResponse:
        path = f"/api/pages/{quote(slug)}"
        response = self._client.ask(method, path, body, headers)
        if response.status in {409, 412}:
            raise SyncConflict
        if response.status >= 500 or response.status in {402, 429}:
            raise CommandError(self._client.reason(response, path))
        if response.status >= 400 and response.status != 404:
            raise SyncRefusal(self._client.reason(response, path))
        return response


def _origin(path: str) -> dict[str, str]:
    """Return the header with the path of a page's file, which the memory stores."""
    return {"X-Sixfold-Path": quote(path)}


def _version(response: CliResponse) -> int:
    tag = response.headers.get("etag", "")
    if (match := _TAG.fullmatch(tag)) is None:
        raise CommandError(
            f"The response of the server has the invalid ETag {tag[:40]!r}: is it a Sixfold server?"
        )
    return int(match[1])


# -- shared by the commands ----------------------------------------------------------------------


def text_of(file: str) -> str:
    """Return the text of a file, or of standard input for `-`."""
    """Return the text of a file, or of standard input for `-`."""
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CommandError(f"{'Standard input' if file == '-' else file} is not UTF-8 text") from None


def _inline(text: str) -> str:
    return text_of("-") if text == "-" else text


def _send_json(client: ServerClient, method: str, path: str, document: Document) -> Document:
    body = json.dumps(document).encode()
    return client.document(client.ask(method, path, body, _JSON), path)


def _show(page: Document, arguments: argparse.Namespace) -> int:
    if arguments.json:
        put_json(page)
    else:
        TerminalStyle().line(f"  {page['slug']}  version {page['version']}{_title(page)}")
    return 0


def _title(page: Document) -> str:
    """Return the title after two spaces, or nothing for a page without one, whose title is its slug."""
    return "" if page["title"] == page["slug"] else f"  {page['title']}"
