"""Titles of runs: the prompt or another text of the inputs, or else the name of the input file.

The name of a file is that of the upload, the prompt of the run that generated it, or the end of its URL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

from sixfold.core.database import Database, Query, Transaction, many
from sixfold.core.media.media import MEDIA_PATH

_URL = re.compile(r'"(https?://[^"\\\s]{1,2000})"')
_MEDIA = re.compile(re.escape(MEDIA_PATH) + r"([A-Za-z0-9_-]{16,64}\.[a-z0-9]{1,8})$")
# Inputs that can serve as the title of a run, best first.
TEXT_INPUTS = ("prompt", "text", "style", "style_prompt", "description", "lyrics", "input", "texts")
# An input may be a list, whose first text is the title.
TEXTS = {name: re.compile(rf'"{name}":\[?"((?:[^"\\]|\\.)*)') for name in TEXT_INPUTS}
MAX_TITLE, _MAX_NAME = 300, 100
# The runs in a row without a prompt that are followed.
_DEPTH = 4


def title_of(inputs: Mapping[str, Any]) -> str:
    """Return a title for a run in one line, from its inputs, or an empty string."""
    values = ((name, _first(inputs.get(name))) for name in TEXT_INPUTS)
    texts = ((name, " ".join(value.split())) for name, value in values if isinstance(value, str))
    return next((text for name, text in texts if _is_title(name, text)), "")[:MAX_TITLE]


def _is_title(name: str, text: str) -> bool:
    """Return whether a text names a run; a style of one word is an option, such as `voxel48`."""
    return bool(text) and (name != "style" or " " in text)


def _first(value: Any) -> Any:
    """Return the first item of a list, or another value unchanged."""
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return next(iter(items), None)


def text_of(inputs: str) -> str:
    """Return a title for a run in one line, or an empty string; `inputs` is JSON, possibly truncated."""
    texts = ((name, decoded(match[1])) for name, text in TEXTS.items() if (match := text.search(inputs)))
    return next((text for name, text in texts if _is_title(name, text)), "")[:MAX_TITLE]


def names_file(inputs: str) -> bool:
    """Return whether inputs contain the URL of a file; `inputs` is JSON, possibly truncated."""
    return _URL.search(inputs) is not None


def decoded(text: str) -> str:
    """Return the content of a JSON string, possibly truncated, in one line."""
    try:
        return " ".join(str(json.loads(f'"{text}"')).split())
    except ValueError:
        # An escape sequence that the limit has truncated.
        return " ".join(text.rpartition("\\")[0].split())


def record(media_name: str, file_name: str) -> Transaction[None]:
    """Record the name that an uploaded file has on the user's device, without its folders."""
    text = " ".join(re.split(r"[/\\]", file_name)[-1].replace("\0", "").split())[:_MAX_NAME]
    if text:
        yield Query("media_set_file_name", {"name": media_name, "file_name": text})


async def of_files(
    database: Database, account_id: str, inputs: Mapping[str, str], depth: int = _DEPTH
) -> dict[str, str]:
    """Return the names of the input files of runs; `inputs` maps ids to JSON, possibly truncated.

    If a file is the output of a run without a prompt, its name is that of this run's input file.
    """
    urls = {run_id: match[1] for run_id, text in inputs.items() if (match := _URL.search(text))}
    stored = {run_id: match[1] for run_id, url in urls.items() if (match := _MEDIA.search(url))}
    names: dict[str, str] = {}
    if stored:
        query = many("media_origins", names=json.dumps(list(stored.values())), account_id=account_id)
        rows = await database.read(query, snapshot=False)
        names = {row["name"]: row["file_name"] or text_of(row["inputs"] or "") for row in rows}
        unnamed = {row["name"]: row["inputs"] for row in rows if not names[row["name"]] and row["inputs"]}
        if unnamed and depth > 1:
            names |= await of_files(database, account_id, unnamed, depth - 1)
    found = {
        run_id: names.get(stored[run_id], "") if run_id in stored else _last_part(url)
        for run_id, url in urls.items()
    }
    return {run_id: title for run_id, title in found.items() if title}


def _last_part(url: str) -> str:
    """Return the file name at the end of a URL, or "" if it does not end with one."""
    name = unquote(re.split("[?#]", url, maxsplit=1)[0].rpartition("/")[2])
    return " ".join(name.split())[:_MAX_NAME] if "." in name else ""
