"""The tables of `sixfold.toml` with their own checks: `[search]` and `[sign_in]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold import settings
from sixfold.app import media
from sixfold.app.gateway import web_search
from sixfold.core.accounts.organizations import group_roles
from sixfold.net.clients import HttpClients
from sixfold.settings import InvalidSetting


def load(folder: Path, text: str) -> settings.Settings:
    (folder / "sixfold.toml").write_text(text)
    return settings.load({}, data_dir=folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[search]\nsearxng = 3", "must be a URL"),
        ('[search]\nsearxng = "searx"', "must be a URL"),
        ('[search]\nsearxng = "http://user:secret@host"', "must be a URL"),
        ('[search]\nurl = "http://host"', "unknown setting 'url'"),
        ('[search]\nsearxng = "http://host"\ntimeout_seconds = 0', "1 to 60"),
        ('[search]\nsearxng = "http://host"\ntimeout_seconds = true', "must be a number"),
    ],
)
def test_invalid_search_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    configured = load(tmp_path, text)
    with pytest.raises(InvalidSetting, match=words) as excinfo:
        web_search.engine(configured, HttpClients(media.open_fetcher(configured)))
    assert "secret" not in str(excinfo.value)


def test_table_of_sign_in_is_read_from_the_file(tmp_path: Path) -> None:
    table: Any = load(tmp_path, '[sign_in]\nclaim = "groups"\n').tables["sign_in"]
    assert group_roles.parse(table).claim == "groups"
