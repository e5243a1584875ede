"""Fake Hugging Face Hub over a folder: the endpoints that a download needs, with configurable faults."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Files on one page of the tree.
_PAGE = 5


@dataclass
class LoopbackHub:
    """Repositories in `folder/owner/name/…`. Each request for a file consumes an entry of `faults[path]`:
    a number truncates the response to that many bytes, `wrong` changes a byte, `no-range` ignores ranges, and
    `429`, `503`, `404`, `401` are returned as the status. `claims` changes rows of the tree."""

    folder: Path
    url: str = ""
    faults: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    claims: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def ranges_of(self, path: str) -> list[str]:
        """Return the `Range` of each request for the bytes of a file, in order."""
        return [expected for name, expected in self.requests if name == path]

    def rows(self, repository: str) -> list[dict[str, Any]]:
        root = self.folder / repository
        results: list[dict[str, Any]] = []
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_dir():
                results.append({"type": "directory", "path": name, "oid": "0" * 40, "size": 0})
                continue
            data = path.read_bytes()
            row = {"type": "file", "path": name, "oid": _git(data), "size": len(data)}
            if path.suffix in {".safetensors", ".bin"}:
                oid = hashlib.sha256(data).hexdigest()
                row |= {"oid": "1" * 40, "lfs": {"oid": oid, "size": len(data), "pointerSize": 130}}
            results.append({**row, **self.claims.get(name, {})})
        return results


def _git(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - git's own


@contextmanager
def serving(folder: Path) -> Iterator[LoopbackHub]:
    """Run a Hub over `folder` within the block."""
    hub = LoopbackHub(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # With Nagle's algorithm, a body is delayed by 40 ms after its head.
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            """Write no access log."""

        def do_GET(self) -> None:
            _answer(hub, self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(hub: LoopbackHub, request: BaseHTTPRequestHandler) -> None:
    where = urlsplit(request.path)
    parts = unquote(where.path).strip("/").split("/")
    if parts[:2] == ["api", "models"]:
        _describe(hub, request, "/".join(parts[2:4]), parts[4:], where.query)
    elif parts[0] == "cdn":
        _send_file(hub, request, hub.folder / "/".join(parts[1:3]), "/".join(parts[3:]))
    elif parts[2:4] == ["resolve", COMMIT]:
        path = "/".join(parts[4:])
        # Large files are served from another host.
        if path.endswith((".safetensors", ".bin")):
            _send(request, 302, b"", {"Location": f"{hub.url}/cdn/{parts[0]}/{parts[1]}/{path}"})
        else:
            _send_file(hub, request, hub.folder / parts[0] / parts[1], path)
    else:
        _send(request, 404, b"Not found")


def _describe(
    hub: LoopbackHub, request: BaseHTTPRequestHandler, repository: str, rest: list[str], query: str
) -> None:
    if not (hub.folder / repository).is_dir():
        return _send(request, 404, b'{"error":"Repository not found"}')
    if fault := _fault(hub, f"api/{rest[0]}"):
        return _send(request, int(fault), b"{}", {"Retry-After": "3"})
    if rest[0] == "revision":
        return _send(request, 200, json.dumps({"id": repository, "sha": COMMIT}).encode())
    rows = hub.rows(repository)
    first = int(query.rpartition("cursor=")[2]) if "cursor=" in query else 0
    after = first + _PAGE
    link = {}
    if after < len(rows):
        base = f"{hub.url}/api/models/{repository}/tree/{COMMIT}?recursive=true"
        link = {"Link": f'<{base}&cursor={after}>; rel="next"'}
    return _send(request, 200, json.dumps(rows[first:after]).encode(), link)


def _fault(hub: LoopbackHub, path: str) -> Any:
    return hub.faults[path].pop(0) if hub.faults[path] else None


def _send_file(hub: LoopbackHub, request: BaseHTTPRequestHandler, root: Path, path: str) -> None:
    expected = request.headers.get("Range", "")
    hub.requests.append((path, expected))
    fault = _fault(hub, path)
    if isinstance(fault, str) and fault.isdigit():
        return _send(request, int(fault), b"no", {"Retry-After": "3"})
    data = (root / path).read_bytes()
    if fault == "wrong":
        data = bytes([data[0] ^ 1]) + data[1:]
    first = int(expected.removeprefix("bytes=").rstrip("-")) if expected and fault != "no-range" else 0
    body = data[first:]
    headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "Accept-Ranges": "bytes"}
    if first:
        headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
    return _send(request, 206 if first else 200, body, headers, cut=fault if isinstance(fault, int) else None)


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
    *,
    cut: int | None = None,
) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body if cut is None else body[:cut])
    if cut is not None:
        request.close_connection = True
