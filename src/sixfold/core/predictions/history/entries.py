"""A page of an account's history: runs and live sessions, newest first, filtered and searched.

A request reads at most `MAX_SCANNED` predictions, regardless of how many match; its cursor continues after
the last prediction that was read.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from sixfold.core import ids, pagination
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.metering import CHILDREN
from sixfold.core.clock import DAY_US, SECOND_US
from sixfold.core.database import Database, Row, many, to_struct
from sixfold.core.predictions import queries
from sixfold.core.predictions.history import titles
from sixfold.core.predictions.states import TERMINAL

# Maximum number of predictions that one page reads, and that one query reads.
MAX_SCANNED, WINDOW = 2000, 250
_MAX_SESSIONS, _MAX_FILES, _MAX_PARTS = 200, 500, 500
_LAST = "~"
_CURSOR = re.compile(r"[0-9a-z]{36}")
_VALUE = re.compile(r'"(?:value|text)":"((?:[^"\\]|\\.)*)')
SESSION_PREFIX = "sess_"
# A recording is created at most this many µs after the end of its session; see `SessionRecording`.
RECORDING_US = 600 * SECOND_US
LIVE, WORKFLOW, UNFINISHED = "live", "workflow", "unfinished"
_KINDS = {
    "image": ("image",),
    "video": ("video",),
    "audio": ("audio",),
    "model3d": ("model3d",),
    "text": ("text", "json", "file"),
}


class HistoryFilter(msgspec.Struct, frozen=True):
    """The filter of a page; empty fields match all entries.

    Days are numbers of days since 1970 in UTC.

    `words` must all occur in the texts of a run or in the name of the file that is its title. `state` is a
    state of predictions or `unfinished`.
    """

    words: tuple[str, ...] = ()
    kind: str = ""
    model: str = ""
    state: str = ""
    first_day: int | None = None
    last_day: int | None = None


class HistoryFile(msgspec.Struct, frozen=True):
    """An output file of a run."""

    name: str
    content_type: str


class HistoryPart(msgspec.Struct, frozen=True):
    """A run that a workflow started."""

    id: str
    model: str
    state: str
    files: tuple[HistoryFile, ...] = ()


class HistoryEntry(msgspec.Struct, frozen=True):
    """A run, or a live session if `is_session`; times are in epoch µs, amounts in micro-dollars.

    `title` is the prompt or another string input, or "". `text` is the beginning of a text output.
    `recording` is the id of the latest recording of a session, whose files are those of the entry, or "".
    """

    id: str
    model: str
    state: str
    title: str
    cost: int
    list_price: int | None
    created_at: int
    completed_at: int | None
    output_kind: str = ""
    quality: str = ""
    error: str = ""
    text: str = ""
    files: tuple[HistoryFile, ...] = ()
    parts: tuple[HistoryPart, ...] = ()
    is_session: bool = False
    recording: str = ""

    @property
    def has_drawing(self) -> bool:
        """Whether the result is data, of which the server draws a picture."""
        return self.state == "succeeded" and self.output_kind == "json" and not (self.files or self.text)

    @property
    def is_unfinished(self) -> bool:
        """Whether the run is queued or running."""
        return self.completed_at is None

    @property
    def day(self) -> int:
        """The day on which the entry was created, in days since 1970 in UTC."""
        return self.created_at // DAY_US


class HistoryPage(msgspec.Struct, frozen=True):
    """Entries, and the cursor of the next page.

    If the search stopped early, the page also contains the time (epoch µs) back to which it searched.
    """

    entries: tuple[HistoryEntry, ...]
    next_cursor: str | None
    searched_to: int | None = None


class _Scan(msgspec.Struct, frozen=True):
    """The ids of matching predictions, and the digits of the id down to which all were read ("" for all)."""

    ids: Sequence[str] = ()
    reached: str = ""
    reached_at: int | None = None


class RunHistory:
    """Reads the history of accounts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, tenant: Tenant, filters: HistoryFilter, limit: int, cursor: str = "") -> HistoryPage:
        """Return a page of at most `limit` entries; raises `InvalidCursor`."""
        before = _before(filters, cursor)
        scan = _Scan() if filters.kind == LIVE else await self._scan(tenant, filters, limit, before)
        sessions, reached = await self._sessions(tenant, filters, before, scan.reached)
        page_entries = [*await self.by_ids(tenant, scan.ids), *sessions]
        page_entries.sort(key=lambda entry: _digits(entry.id), reverse=True)
        # A session below the last id that was read is part of the next page.
        page_entries = [entry for entry in page_entries if _digits(entry.id) >= reached]
        entries = tuple(page_entries[:limit])
        is_last = len(page_entries) <= limit
        entries = tuple(await self._with_recordings(tenant, entries))
        if not is_last:
            return HistoryPage(entries, _digits(entries[-1].id))
        is_short = bool(reached) and len(entries) < limit
        return HistoryPage(entries, reached or None, scan.reached_at if is_short else None)

    async def _scan(self, tenant: Tenant, filters: HistoryFilter, limit: int, before: str) -> _Scan:
        ids: list[str] = []
        oldest = 0
        words = [word.casefold() for word in filters.words]
        since = 0 if filters.first_day is None else filters.first_day * DAY_US
        for _ in range(MAX_SCANNED // WINDOW):
            window = queries.history_window(tenant, f"pred_{before}", WINDOW, with_texts=bool(words))
            rows = await self._database.read(window, snapshot=False)
            for row in await self._matching(tenant, rows, filters, words):
                if row["created_at"] < since:
                    return _Scan(ids)
                ids.append(row["id"])
                if len(ids) == limit:
                    return _Scan(ids, _digits(row["id"]))
            if len(rows) < WINDOW or rows[-1]["created_at"] < since:
                return _Scan(ids)
            before, oldest = _digits(rows[-1]["id"]), int(rows[-1]["created_at"])
        return _Scan(ids, before, oldest)

    async def _matching(
        self, tenant: Tenant, rows: Sequence[Row], filters: HistoryFilter, words: Sequence[str]
    ) -> list[Row]:
        """Return the rows that match the filters and whose texts, or else file names, contain the words."""
        selected = [row for row in rows if _is_selected(row, filters)]
        if not words:
            return selected
        untitled = await asyncio.to_thread(_untitled, selected)
        names = await titles.of_files(self._database, tenant.account_id, untitled) if untitled else {}
        return await asyncio.to_thread(_containing, selected, words, names)

    async def by_ids(self, tenant: Tenant, prediction_ids: Sequence[str]) -> list[HistoryEntry]:
        """Return the runs and sessions of a tenant with these ids, newest first; unknown ids are ignored."""
        if not prediction_ids:
            return []
        session_ids = [each for each in prediction_ids if each.startswith(SESSION_PREFIX)]
        if session_ids:
            run_ids = [each for each in prediction_ids if each not in session_ids]
            found = [*await self.by_ids(tenant, run_ids), *await self._sessions_of(tenant, session_ids)]
            return sorted(found, key=lambda entry: _digits(entry.id), reverse=True)
        records = await self._database.read(
            many("history_entries", ids=_json(prediction_ids)), snapshot=False
        )
        rows = [row for row in records if tenant.sees(row["account_id"], row["credential_id"] or "")]
        part_rows = many("history_parts", ids=_json([row["id"] for row in rows]), limit=_MAX_PARTS)
        parts = await self._database.read(part_rows, snapshot=False)
        owners = [row["id"] for row in (*rows, *parts)]
        files = await self._files(owners)
        below: dict[str, list[HistoryPart]] = {}
        for row in parts:
            part = HistoryPart(row["id"], row["model"], row["state"], files.get(row["id"], ()))
            below.setdefault(row["parent_id"], []).append(part)
        rows.sort(key=lambda row: str(row["id"]), reverse=True)
        entries = [_entry(row, files.get(row["id"], ()), tuple(below.get(row["id"], ()))) for row in rows]
        untitled = {entry.id for entry in entries if not entry.title}
        inputs = {row["id"]: row["inputs"] for row in rows if row["id"] in untitled}
        names = await titles.of_files(self._database, tenant.account_id, inputs)
        return [replace(entry, title=names.get(entry.id, entry.title)) for entry in entries]

    async def _sessions_of(self, tenant: Tenant, session_ids: Sequence[str]) -> list[HistoryEntry]:
        query = many("history_sessions_by_id", **tenant.row, ids=_json(session_ids))
        rows = await self._database.read(query, snapshot=False)
        return await self._with_recordings(tenant, [_session(row) for row in rows])

    async def _with_recordings(self, tenant: Tenant, entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
        """Return ended sessions with their latest recordings; other entries are returned unchanged."""
        sessions = [
            _recording_search(entry, entry.completed_at)
            for entry in entries
            if entry.is_session and entry.completed_at is not None
        ]
        if not sessions:
            return list(entries)
        query = many("history_recordings", **tenant.row, sessions=json.dumps(sessions))
        rows = await self._database.read(query, snapshot=False)
        recordings = {str(row["session_id"]): str(row["id"]) for row in rows}
        files = await self._files(list(recordings.values())) if recordings else {}
        return [
            replace(entry, recording=recording, files=files.get(recording, ()))
            if (recording := recordings.get(entry.id, ""))
            else entry
            for entry in entries
        ]

    async def _files(self, prediction_ids: Sequence[str]) -> dict[str, tuple[HistoryFile, ...]]:
        query = many("history_files", ids=_json(prediction_ids), limit=_MAX_FILES)
        files: dict[str, tuple[HistoryFile, ...]] = {}
        for row in await self._database.read(query, snapshot=False):
            file = HistoryFile(row["name"], row["content_type"])
            files[row["prediction_id"]] = (*files.get(row["prediction_id"], ()), file)
        return files

    async def _sessions(
        self, tenant: Tenant, filters: HistoryFilter, before: str, reached: str
    ) -> tuple[list[HistoryEntry], str]:
        """Return the matching sessions between two points, and the point up to which they were read."""
        if filters.kind not in ("", LIVE):
            return [], reached
        since = "" if filters.first_day is None else _digits(ids.earliest("sess", filters.first_day * DAY_US))
        query = many(
            "history_sessions",
            **tenant.row,
            before=f"sess_{before}",
            after=f"sess_{max(reached, since)}",
            model=filters.model,
            limit=_MAX_SESSIONS,
        )
        rows = await self._database.read(query, snapshot=False)
        if len(rows) == _MAX_SESSIONS:
            reached = max(reached, _digits(rows[-1]["id"]))
        entries = [_session(row) for row in rows]
        return [entry for entry in entries if _is_wanted(entry, filters)], reached


def _before(filters: HistoryFilter, cursor: str) -> str:
    if cursor and not _CURSOR.fullmatch(cursor):
        raise pagination.InvalidCursor
    if filters.last_day is None:
        return cursor or _LAST
    end = _digits(ids.earliest("pred", (filters.last_day + 1) * DAY_US))
    return min(cursor or _LAST, end)


def _is_selected(row: Row, filters: HistoryFilter) -> bool:
    if row["parent_id"] is not None or filters.model not in ("", row["model"]):
        return False
    if filters.kind == WORKFLOW and row["meter"] != CHILDREN:
        return False
    if filters.kind in _KINDS and row["output_kind"] not in _KINDS[filters.kind]:
        return False
    if filters.state == UNFINISHED and row["state"] in TERMINAL:
        return False
    return filters.state in ("", UNFINISHED, row["state"])


def _untitled(rows: Sequence[Row]) -> dict[str, str]:
    """Return the inputs of the runs that may have the name of a file as their title, by id."""
    return {
        row["id"]: row["inputs"]
        for row in rows
        if titles.names_file(row["inputs"]) and not titles.text_of(row["inputs"])
    }


def _containing(rows: Sequence[Row], words: Sequence[str], names: Mapping[str, str]) -> list[Row]:
    """Return the rows whose texts and name in `names` contain all the words."""
    texts = ((row, _searched(row, names)) for row in rows)
    return [row for row, text in texts if all(word in text for word in words)]


def _searched(row: Row, names: Mapping[str, str]) -> str:
    matches = (text.search(row["inputs"]) for text in titles.TEXTS.values())
    texts = [titles.decoded(match[1]) for match in matches if match]
    return " ".join([*texts, names.get(row["id"], "")]).casefold()


def _is_wanted(entry: HistoryEntry, filters: HistoryFilter) -> bool:
    text = entry.title.casefold()
    state = filters.state
    is_state = state in ("", entry.state) or (state == UNFINISHED and entry.is_unfinished)
    return is_state and all(word.casefold() in text for word in filters.words)


def _entry(row: Row, files: tuple[HistoryFile, ...], parts: tuple[HistoryPart, ...]) -> HistoryEntry:
    value = _VALUE.search(row["output"] or "")
    return to_struct(
        HistoryEntry,
        row,
        title=titles.text_of(row["inputs"]),
        error=(row["error"] or "")[: titles.MAX_TITLE],
        text=titles.decoded(value[1]) if value else "",
        files=files,
        parts=parts,
        is_session=False,
        recording="",
    )


def _session(row: Row) -> HistoryEntry:
    state = "running" if row["closed_at"] is None else "failed" if row["state"] == "failed" else "succeeded"
    return HistoryEntry(
        id=row["id"],
        model=row["model"],
        state=state,
        title=titles.text_of(row["inputs"]),
        cost=row["cost"],
        list_price=None,
        created_at=row["created_at"],
        completed_at=row["closed_at"],
        error=(row["reason"] or "")[: titles.MAX_TITLE] if state == "failed" else "",
        is_session=True,
    )


def _recording_search(session: HistoryEntry, completed_at: int) -> dict[str, str]:
    """Return the ids between which the recording of an ended session was created, and its inputs' pattern."""
    return {
        "id": session.id,
        "after": ids.earliest("pred", session.created_at),
        "before": ids.earliest("pred", completed_at + RECORDING_US),
        "pattern": f'%"session":"{session.id}"%',
    }


def _digits(identifier: str) -> str:
    return identifier.partition("_")[2]


def _json(values: Sequence[str]) -> str:
    return json.dumps(list(values))
