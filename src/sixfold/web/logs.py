"""Log lines as JSON objects, with all secrets removed."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_SECRETS = re.compile(
    r"(?P<prefix>\b(?:sf|link|sess|whsec|code|refresh|invite|ticket|local)_)[A-Za-z0-9_-]{43}"
    r"|(?P<client>\bek_)[A-Za-z0-9_-]{43,}"
    r"|(?P<share>/s/|\?share=|/media/)[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])"
    r"|(?P<folder>/uploads/)[0-9a-f]{32}\b"
    r"|(?P<job>\bjob_)[0-9a-z]{36}"
    r"|(?P<scheme>\b[Bb]earer\s+)[^\s\"'\\]+"
    r"|(?P<provider>\b(?:sk-|r8_))[A-Za-z0-9_-]{20,}"
    r"|(?P<fal>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}:)[0-9a-f]{32}\b"
    r"|(?P<query>\b(?:api_key|token|key|password|csrf)[\"\\]*\s*[=:]\s*[\"\\]*)[^\s\"'&,}\\]+"
)


def redact(text: str) -> str:
    """Return `text` with keys, tokens, passwords, job ids, and secret parts of URLs replaced by `***`."""
    return _SECRETS.sub(_mask, text)


def _mask(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None) + "***"


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message, and the fields of `extra`.

    `process` is added to each line, unless it is None.
    """

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._fields = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._fields,
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _PLAIN)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return redact(msgspec.json.encode(line, enc_hook=str).decode("utf-8", "replace"))


def configure(level: str, stream: TextIO | None = None, *, process: int | None = None) -> None:
    """Send the log lines of all loggers to `stream` (default: standard error), and nowhere else.

    `process` is the number of this process, for a server that has several.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # httpx logs every health check of a model server.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        # `WebApp` writes the access log itself.
        logger.propagate = name != "uvicorn.access"
