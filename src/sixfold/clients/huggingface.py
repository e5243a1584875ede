"""Downloads from the Hugging Face Hub: the files of a repository, resumable and verified.

Every file is pinned to a commit, resumed after an interruption, and verified with the hash that the Hub
states: sha256 for a large file, git's blob hash for a small one.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

# Consecutive attempts without any new byte.
_MAX_ATTEMPTS = 6
# Resumptions of one file that each received some bytes.
_MAX_RESUMES = 1000
_LONGEST_WAIT_SECONDS = 60.0
_CHUNK_BYTES = 1 << 20
_MAX_PAGES = 50
# A page of 1,000 files has about 300 KiB.
_MAX_RESPONSE_BYTES = 16 * 2**20
_IDENTITY = {"Accept-Encoding": "identity"}
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')

ProgressCallback = Callable[[int], None]
"""Called with the number of bytes of the file so far."""


class HubError(Exception):
    """Raised if a download fails; the message is one sentence with the reason and a remedy."""


class HubFile(msgspec.Struct, frozen=True):
    """A file of a repository; `sha256` is stated for large files, git's `blob` hash for small ones."""

    path: str
    size: int
    sha256: str = ""
    blob: str = ""


class RepositoryTree(msgspec.Struct, frozen=True):
    """The files of a repository at one commit."""

    repository: str
    commit: str
    files: tuple[HubFile, ...]


class HuggingFaceHub:
    """A client of one Hub; `pause` waits between attempts."""

    def __init__(self, url: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._url = url.rstrip("/")
        self._pause = pause
        self._client = httpx.Client(
            timeout=httpx.Timeout(30.0), follow_redirects=True, max_redirects=5, trust_env=False
        )

    def __enter__(self) -> HuggingFaceHub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def tree(self, repository: str, revision: str) -> RepositoryTree:
        """Return all files of a repository at the commit of `revision`; raises `HubError`."""
        if not _REPOSITORY.fullmatch(repository):
            raise HubError(f"{repository!r} is not a repository name such as owner/name")
        base = f"{self._url}/api/models/{repository}"
        source = f"{repository} at {revision}"
        details = self._json(f"{base}/revision/{quote(revision, safe='')}", source)[0]
        commit = details.get("sha") if isinstance(details, dict) else None
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{7,64}", commit):
            raise HubError(f"The Hub did not return the commit of {source}")
        files: list[HubFile] = []
        url: str | None = f"{base}/tree/{commit}?recursive=true"
        for _ in range(_MAX_PAGES):
            rows, url = self._json(url, source)
            files += _files(rows, source)
            if url is None:
                return RepositoryTree(repository, commit, tuple(files))
        raise HubError(f"{source} has too many files: the Hub lists them on more than {_MAX_PAGES} pages")

    def fetch(
        self,
        tree: RepositoryTree,
        file: HubFile,
        target: Path,
        on_progress: ProgressCallback = lambda _count: None,
    ) -> None:
        """Download a file to `target`, resuming a `.part` file beside it; raises `HubError`.

        `target` is created only when the file is complete and verified.
        """
        part = target.with_name(target.name + ".part")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._complete(
            f"{self._url}/{tree.repository}/resolve/{tree.commit}/{quote(file.path)}", file, part, on_progress
        )
        if not matches(part, file):
            part.unlink(missing_ok=True)
            raise HubError(f"{file.path} does not match the hash that the Hub states: try again")
        part.replace(target)

    def _complete(self, url: str, file: HubFile, part: Path, on_progress: ProgressCallback) -> None:
        """Download until the file is complete; only attempts without new bytes count."""
        tries = 0
        for _ in range(_MAX_RESUMES):
            received = _length(part)
            if received >= file.size:
                return
            try:
                self._continue(url, file, part, max(0, received), on_progress)
            except _Retry as retry:
                tries = 0 if _length(part) > received else tries + 1
                if tries:
                    self._wait_or_raise(
                        retry, tries, f"{file.path} could not be fetched: {retry}. Try again to resume"
                    )

    def _wait_or_raise(self, retry: _Retry, tries: int, message: str) -> None:
        """Wait before the next attempt; raises `HubError` with `message` after too many attempts."""
        if tries >= _MAX_ATTEMPTS:
            raise HubError(message) from retry
        self._pause(retry.wait_seconds or 2.0 ** (tries - 1))

    def _continue(
        self, url: str, file: HubFile, part: Path, received: int, on_progress: ProgressCallback
    ) -> None:
        headers = _IDENTITY | ({"Range": f"bytes={received}-"} if received else {})
        try:
            with self._client.stream("GET", url, headers=headers) as response:
                self._check(response, file.path)
                # The server may not support ranges.
                restarts = response.status_code == 200
                with part.open("wb" if restarts else "ab") as out:
                    count = 0 if restarts else received
                    # Chunks are not buffered, so they are on disk if the connection breaks.
                    for chunk in response.iter_raw():
                        count += len(chunk)
                        if count > file.size:
                            raise HubError(
                                f"{file.path} is larger than the {file.size} bytes that the Hub states"
                            )
                        out.write(chunk)
                        on_progress(count)
        except httpx.TransportError as error:
            raise _Retry(f"the connection was lost ({type(error).__name__})") from error
        if part.stat().st_size < file.size:
            raise _Retry("the response was incomplete")

    def _json(self, url: str, source: str) -> tuple[Any, str | None]:
        """Return the parsed document, and the URL of the next page or None."""
        tries = 0
        while True:
            try:
                with self._client.stream("GET", url, headers=_IDENTITY) as response:
                    self._check(response, source)
                    next_link = _NEXT.search(response.headers.get("Link", ""))
                    return json.loads(_body(response, source)), next_link[1] if next_link else None
            except httpx.TransportError as error:
                retry = _Retry(f"{self._url} does not respond ({type(error).__name__})")
            except _Retry as retry_error:
                retry = retry_error
            except (ValueError, RecursionError) as error:
                raise HubError(f"The Hub's response for {source} is not valid JSON") from error
            tries += 1
            self._wait_or_raise(retry, tries, f"{source} could not be looked up: {retry}")

    def _check(self, response: httpx.Response, source: str) -> None:
        """Raise `HubError` for an error response, or `_Retry` if the error is temporary."""
        if self._url.startswith("https:") and response.url.scheme != "https":
            raise HubError(f"The Hub redirects {source} to a URL without TLS: {response.url.host}")
        if response.status_code in {200, 206}:
            return
        if response.status_code in _BUSY:
            raise _Retry(f"the Hub returned status {response.status_code}", _wait(response))
        if response.status_code == 404:
            raise HubError(f"{source} was not found on the Hub")
        if response.status_code in {401, 403}:
            raise HubError(
                f"The Hub requires you to accept the license of {source}: accept it on its page, download "
                "the files with `hf download`, and add the folder with --from"
            )
        raise HubError(f"The Hub returned status {response.status_code} for {source}")


class _Retry(Exception):
    """Raised for a temporary failure; `wait_seconds` is the pause that the Hub requests."""

    def __init__(self, reason: str, wait_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


def _length(part: Path) -> int:
    """Return the size in bytes; -1 if the file does not exist."""
    return part.stat().st_size if part.exists() else -1


def _wait(response: httpx.Response) -> float:
    retry_after = response.headers.get("Retry-After", "")
    return min(float(retry_after), _LONGEST_WAIT_SECONDS) if retry_after.isdigit() else 0.0


def _body(response: httpx.Response, source: str) -> bytes:
    """Return the body of a response that is not compressed; raises `HubError` if it is too large."""
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > _MAX_RESPONSE_BYTES:
            raise HubError(
                f"The Hub's response for {source} has more than {_MAX_RESPONSE_BYTES // 2**20} MiB"
            )
    return bytes(body)


def _files(rows: Any, source: str) -> list[HubFile]:
    try:
        return [_file(row) for row in rows if row.get("type") == "file"]
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise HubError(f"The Hub's response for {source} is not a list of files") from error


def _file(row: dict[str, Any]) -> HubFile:
    path = str(row.get("path", ""))
    parts = PurePosixPath(path).parts
    if (
        not path
        or path.startswith("/")
        or "\\" in path
        or ".." in parts
        or any(":" in part for part in parts)
    ):
        raise HubError(f"The Hub lists the file {path!r}, whose name is not safe to write")
    large = row.get("lfs") or {}
    size = int(large.get("size", row.get("size", 0)))
    return HubFile(path, size, str(large.get("oid", "")), "" if large else str(row.get("oid", "")))


def matches(path: Path, file: HubFile) -> bool:
    """Return whether a file on disk has the stated size and hash."""
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    if file.sha256:
        return digest(path, hashlib.sha256()) == file.sha256
    # git also hashes the kind and length. SHA-1 is only used to detect damaged downloads.
    return not file.blob or digest(path, hashlib.sha1(b"blob %d\0" % file.size)) == file.blob  # noqa: S324 - git's


def digest(path: Path, into: Any) -> str:
    """Return the digest of a file in hexadecimal, calculated with the hash object `into`."""
    with path.open("rb") as file:
        for chunk in _chunks(file):
            into.update(chunk)
    return str(into.hexdigest())


def _chunks(file: Any) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
