"""The result files of a batch, written line by line when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec

from sixfold.core import ids
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.batches import lines
from sixfold.core.batches.models import Batch, BatchDialect, BatchOutcome, LineProblem, LineReply
from sixfold.core.batches.service import OUTPUT_PURPOSE
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database, Query, Row, Transaction, many
from sixfold.core.files import files
from sixfold.core.files.files import AccountFiles, FileDetails
from sixfold.core.media.media import MediaSource

MAX_ERRORS = 100
# Lines that are read at once, and the characters of their answers, unless one answer has more.
_PAGE_LINES, _PAGE_CHARS = 16, 8 * 2**20
_JSONL = "application/jsonl"
_Target = Literal["output", "error"]
_encode = msgspec.json.Encoder().encode
# OpenAI's messages for lines without a response.
_UNANSWERED: Mapping[BatchOutcome, tuple[str, str]] = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed because the batch was cancelled."),
    "failed": ("batch_failed", "This request was not executed because the batch failed."),
    "completed": ("batch_failed", "This request was not executed."),
}
# Anthropic's result types for lines without a response.
_ANTHROPIC_RESULTS: Mapping[BatchOutcome, str] = {
    "expired": "expired",
    "cancelled": "canceled",
    "failed": "canceled",
    "completed": "canceled",
}
# The error of a background response whose model server returned neither a response nor an error.
_INCOMPLETE = "The model server did not complete the response."


class BatchLost(Exception):
    """Another server has taken over the batch."""


class BatchResults(NamedTuple):
    """Result files that are stored but do not have a name yet, and the numbers of lines.

    `errors` are the errors of a background response.
    """

    sources: Mapping[_Target, MediaSource]
    total: int
    succeeded: int
    failed: int
    errors: Sequence[Mapping[str, Any]] = ()


def _render_openai(batch: Batch, outcome: BatchOutcome, row: Row) -> tuple[_Target, bytes]:
    status = row["status"]
    line: dict[str, Any] = {
        "id": f"batch_req_{ids.derived(batch.id, str(row['number'])).partition('_')[2]}",
        "custom_id": row["custom_id"],
        "response": None,
        "error": None,
    }
    if status is None:
        code, message = _UNANSWERED[outcome]
        line["error"] = {"code": code, "message": message}
        return "error", _encode(line)
    body = _raw(row["response"])
    line["response"] = {"status_code": status, "request_id": row["request_id"], "body": body}
    return ("output" if status < 300 else "error"), _encode(line)


def _render_anthropic(_batch: Batch, outcome: BatchOutcome, row: Row) -> tuple[_Target, bytes]:
    status = row["status"]
    if status is None:
        result: dict[str, Any] = {"type": _ANTHROPIC_RESULTS[outcome]}
    elif status < 300:
        result = {"type": "succeeded", "message": _raw(row["response"])}
    else:
        result = {"type": "errored", "error": _raw(row["response"])}
    return "output", _encode({"custom_id": row["custom_id"], "result": result})


_RENDERERS: Mapping[BatchDialect, Callable[[Batch, BatchOutcome, Row], tuple[_Target, bytes]]] = {
    "openai": _render_openai,
    "anthropic": _render_anthropic,
}


def _raw(text: str) -> Any:
    """Return stored JSON without parsing it twice, or a string that is not JSON as a JSON string."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return text
    # A line of the file must not contain a line break.
    return msgspec.Raw(text.replace("\n", " ").replace("\r", " ").encode())


class ResultWriter:
    """Writes the result files of batches."""

    def __init__(self, database: Database, account_files: AccountFiles) -> None:
        self._database = database
        self._files = account_files

    async def collect(self, batch: Batch, outcome: BatchOutcome) -> BatchResults:
        """Store the answers to the lines of a batch."""
        if batch.response_id is not None:
            page = many("batch_lines_page", batch_id=batch.id, after=0, limit=_PAGE_LINES)
            rows = await self._database.read(page)
            size = sum(len(row["response"] or "") for row in rows)
            return await PARSER.run_large(size, _of_response, batch.response_id, rows)
        paths = await asyncio.to_thread(self._paths)
        sinks: dict[_Target, BinaryIO] = {}
        total = succeeded = failed = 0
        try:
            for target, path in paths.items():
                sinks[target] = await asyncio.to_thread(path.open, "xb")
            async for rows in self._pages(batch):
                await asyncio.to_thread(_write, batch, outcome, rows, sinks)
                total += len(rows)
                succeeded += sum(row["status"] is not None and row["status"] < 300 for row in rows)
                failed += sum(row["status"] is not None and row["status"] >= 300 for row in rows)
            for sink in sinks.values():
                await asyncio.to_thread(sink.close)
            return BatchResults(await self._store(paths), total, succeeded, failed)
        finally:
            await asyncio.to_thread(_discard, sinks, paths)

    async def _pages(self, batch: Batch) -> AsyncGenerator[Sequence[Row]]:
        """Yield the lines in order; an answer can have 64 MiB."""
        after = 0
        while True:
            next_lines = many("batch_line_sizes", batch_id=batch.id, after=after, limit=_PAGE_LINES)
            sizes = [int(row["size"]) for row in await self._database.read(next_lines)]
            if not sizes:
                return
            fitting = sum(total <= _PAGE_CHARS for total in accumulate(sizes))
            page = many("batch_lines_page", batch_id=batch.id, after=after, limit=max(1, fitting))
            rows = await self._database.read(page)
            yield rows
            after = int(rows[-1]["number"])

    async def store_problems(self, problems: Sequence[LineProblem]) -> BatchResults:
        """Store the problems of an input that cannot run."""
        paths = await asyncio.to_thread(self._paths)
        try:
            await asyncio.to_thread(_write_problems, paths["error"], problems)
            return BatchResults(await self._store({"error": paths["error"]}), 0, 0, 0)
        finally:
            await asyncio.to_thread(_discard, {}, paths)

    def _paths(self) -> dict[_Target, Path]:
        return {"output": self._files.new_path(), "error": self._files.new_path()}

    async def _store(self, paths: Mapping[_Target, Path]) -> dict[_Target, MediaSource]:
        sources: dict[_Target, MediaSource] = {}
        for target, path in paths.items():
            if (await asyncio.to_thread(path.stat)).st_size:
                sources[target] = await self._files.store(path)
        return sources


def _write(
    batch: Batch, outcome: BatchOutcome, rows: Sequence[Row], sinks: Mapping[_Target, BinaryIO]
) -> None:
    render = _RENDERERS[batch.dialect]
    for row in rows:
        target, line = render(batch, outcome, row)
        sinks[target].write(line + b"\n")


def _write_problems(path: Path, problems: Sequence[LineProblem]) -> None:
    with path.open("xb") as file:
        for problem in problems:
            error = {
                "code": problem.code,
                "message": problem.message,
                "param": problem.param,
                "line": problem.line,
            }
            line = {"id": None, "custom_id": problem.custom_id, "response": None, "error": error}
            file.write(_encode(line) + b"\n")


def _of_response(response_id: str, rows: Sequence[Row]) -> BatchResults:
    """Return the result of a background response, which its route stored if the reply has its id."""
    problems: list[Mapping[str, Any]] = []
    succeeded = 0
    for row in rows:
        if row["status"] is None:
            continue
        reply = LineReply(row["status"], row["request_id"], str(row["response"]).encode())
        if lines.is_stored(reply, response_id):
            succeeded += 1
            continue
        error = lines.error_of(reply)
        message = error.message or _INCOMPLETE
        code = error.code or "server_error"
        problems.append({"code": code, "line": None, "message": message, "param": None})
    return BatchResults({}, len(rows), succeeded, len(problems), problems)


def _discard(sinks: Mapping[_Target, BinaryIO], paths: Mapping[_Target, Path]) -> None:
    for sink in sinks.values():
        sink.close()
    for path in paths.values():
        path.unlink(missing_ok=True)


def end(
    batch: Batch,
    holder: str,
    outcome: BatchOutcome,
    results: BatchResults,
    errors: Sequence[Mapping[str, Any]],
) -> Transaction[None]:
    """End a batch with its result files; raises `BatchLost` if another server has taken it over."""
    file_ids: dict[_Target, str | None] = {"output": None, "error": None}
    tenant = Tenant(batch.account_id, credential_id=batch.credential_id)
    for target, source in results.sources.items():
        details = FileDetails(f"{batch.id}_{target}.jsonl", OUTPUT_PURPOSE, _JSONL, batch.output_seconds)
        file = yield from files.insert(tenant, details, source)
        file_ids[target] = file.id
    rows = yield Query(
        "batch_end",
        {
            "id": batch.id,
            "holder": holder,
            "state": outcome,
            "output_file_id": file_ids["output"],
            "error_file_id": file_ids["error"],
            "total": results.total,
            "succeeded": results.succeeded,
            "failed": results.failed,
            "errors": _encode(list(errors)).decode(),
        },
    )
    if not rows:
        raise BatchLost
    yield Query("batch_lines_delete", {"batch_id": batch.id})
    yield Query("file_media_expire", {"name": batch.input_media})
