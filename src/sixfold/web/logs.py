"""Log lines as JSON objects, with everything secret taken out."""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_SECRETS = re.compile(
    r"(?P<prefix>\b(?:sf|link|sess|whsec)_)[A-Za-z0-9_-]{43}"
    r"|(?P<job>\bjob_)[0-9a-z]{36}"
    r"|(?P<scheme>\b[Bb]earer\s+)[^\s\"'\\]+"
    r"|(?P<provider>\b(?:sk-|r8_))[A-Za-z0-9_-]{20,}"
    r"|(?P<fal>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}:)[0-9a-f]{32}\b"
    r"|(?P<query>\b(?:api_key|token|key|password|csrf)[\"\\]*\s*[=:]\s*[\"\\]*)[^\s\"'&,}\\]+"
)


def redact(text: str) -> str:
    """`text` without keys, tokens, passwords and job ids."""
    return _SECRETS.sub(_starred, text)


def _starred(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group is not None) + "***"


class JsonFormatter(logging.Formatter):
    """One line of JSON for each record: time, level, logger, message, and whatever `extra` adds."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _PLAIN)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return redact(msgspec.json.encode(line, enc_hook=str).decode("utf-8", "replace"))


def configure(level: str, stream: TextIO | None = None) -> None:
    """Send every logger's lines to `stream` (default: standard error), and only there."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("httpx", "httpcore"):  # a line for every look at a model server is no news
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name != "uvicorn.access"  # the dispatcher writes that line itself
