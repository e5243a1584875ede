"""In-process fake of Azure Blob Storage: the subset that a store uses (blobs, blocks, ranges, lists).

Signatures are not checked. Responses follow the service's REST reference.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ACCOUNT, KEY = "account", "c2VjcmV0"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Blob(NamedTuple):
    data: bytes
    kind: str
    tag: str
    at: float


class Azure(ThreadingHTTPServer):
    """Storage account: blobs by `container/name`, and uncommitted blocks."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.containers: set[str] = set()
        self.blobs: dict[str, Blob] = {}
        self.blocks: dict[tuple[str, str], bytes] = {}
        self.writes = 0

    @property
    def options(self) -> dict[str, str]:
        """Return the settings of `[buckets.az]` for this account."""
        endpoint = f"http://127.0.0.1:{self.server_port}/{ACCOUNT}"
        return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint}

    def new_container(self) -> str:
        name = f"container{len(self.containers)}"
        self.containers.add(name)
        return name


@functools.cache
def server() -> Azure:
    """Return the account of this process, starting its server on the first call."""
    result = Azure()
    threading.Thread(target=result.serve_forever, daemon=True).start()
    return result


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # With Nagle's algorithm, a body is delayed by 40 ms after its head.
    disable_nagle_algorithm = True
    server: Azure  # pyright: ignore[reportIncompatibleVariableOverride] - no other server has this handler

    def do_PUT(self) -> None:
        """Store a blob, a block, or a block list."""
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, query = self._path_and_query()
        with self.server.lock:
            match query.get("comp"):
                case "block":
                    self.server.blocks[path, query["blockid"]] = data
                    self._respond(201)
                case "blocklist":
                    names = re.findall(rb"<(?:Latest|Uncommitted)>([^<]+)<", data)
                    self._keep(
                        path, b"".join(self.server.blocks.pop((path, name.decode())) for name in names)
                    )
                case _ if self.headers.get("If-None-Match") == "*" and path in self.server.blobs:
                    self._fail(409, "BlobAlreadyExists")
                case _:
                    self._keep(path, data)

    def _keep(self, path: str, data: bytes) -> None:
        self.server.writes += 1
        kind = self.headers.get("x-ms-blob-content-type") or self.headers.get("Content-Type") or ""
        tag = f'"0x{hashlib.sha256(f"{self.server.writes}".encode()).hexdigest()[:16]}"'
        blob = self.server.blobs[path] = Blob(data, kind, tag, time.time())
        self._respond(201, b"", {"ETag": blob.tag, "Last-Modified": formatdate(blob.at, usegmt=True)})

    def do_POST(self) -> None:
        """Handle a batch of deletions: a multipart request with a multipart response."""
        data = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        paths = [unquote(path) for path in re.findall(r"^DELETE (\S+) HTTP", data, re.MULTILINE)]
        parts: list[str] = []
        with self.server.lock:
            for number, path in enumerate(paths):
                content = self.server.blobs.pop(path.removeprefix(f"/{ACCOUNT}/"), None)
                status = "404 The specified blob does not exist." if content is None else "202 Accepted"
                parts.append(
                    f"--parts\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                    f"HTTP/1.1 {status}\r\nx-ms-version: 2023-11-03\r\n\r\n"
                )
        body = "".join([*parts, "--parts--\r\n"]).encode()
        self._respond(202, body, {"Content-Type": "multipart/mixed; boundary=parts"})

    def do_HEAD(self) -> None:
        """Return the properties of a blob."""
        self.do_GET()

    def do_GET(self) -> None:
        """Return a blob, a range of it, or a list."""
        path, query = self._path_and_query()
        with self.server.lock:
            if query.get("comp") == "list":
                self._list(path.rstrip("/"), query)
                return
            blob = self.server.blobs.get(path)
        if blob is None:
            self._fail(404, "BlobNotFound")
            return
        headers = {
            "ETag": blob.tag,
            "Last-Modified": formatdate(blob.at, usegmt=True),
            "Content-Type": blob.kind or "application/octet-stream",
            "x-ms-blob-type": "BlockBlob",
        }
        expected = _RANGE.fullmatch(self.headers.get("x-ms-range") or self.headers.get("Range") or "")
        if expected is None:
            self._respond(200, blob.data, headers)
            return
        size = len(blob.data)
        start, end = int(expected[1]), min(int(expected[2] or size), size - 1)
        if start >= size:
            self._fail(416, "InvalidRange")
            return
        headers["Content-Range"] = f"bytes {start}-{end}/{size}"
        self._respond(206, blob.data[start : end + 1], headers)

    def _list(self, container: str, query: dict[str, str]) -> None:
        """Return pages of two blobs, so that clients must follow the continuation marker."""
        prefix, marker = query.get("prefix", ""), query.get("marker", "")
        names = sorted(
            name.partition("/")[2] for name in self.server.blobs if name.startswith(f"{container}/")
        )
        names = [name for name in names if name.startswith(prefix) and name >= marker]
        page, rest = names[:2], names[2:]
        rows = "".join(self._row(name, self.server.blobs[f"{container}/{name}"]) for name in page)
        more = f"<NextMarker>{escape(rest[0])}</NextMarker>" if rest else "<NextMarker />"
        text = f"<EnumerationResults><Blobs>{rows}</Blobs>{more}</EnumerationResults>"
        self._respond(200, text.encode(), {"Content-Type": "application/xml"})

    def _row(self, name: str, blob: Blob) -> str:
        return (
            f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Last-Modified>{formatdate(blob.at, usegmt=True)}</Last-Modified><Etag>{blob.tag[1:-1]}</Etag>"
            f"<Content-Length>{len(blob.data)}</Content-Length><Content-Type>{escape(blob.kind)}</Content-Type>"
            "<BlobType>BlockBlob</BlobType></Properties></Blob>"
        )

    def _path_and_query(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        path = unquote(parts.path).removeprefix(f"/{ACCOUNT}/")
        return path, {name: values[0] for name, values in parse_qs(parts.query).items()}

    def _fail(self, status: int, code: str) -> None:
        self._respond(status, f"<Error><Code>{code}</Code></Error>".encode(), {"x-ms-error-code": code})

    def _respond(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"x-ms-version": "2023-11-03", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no access log."""
