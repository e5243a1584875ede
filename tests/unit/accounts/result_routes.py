"""Routes that show the result of a prediction, for the test that a refund withdraws it everywhere."""

from __future__ import annotations

from typing import Any

from sixfold.core import gallery
from sixfold.core.accounts import idempotency, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.database import Query, Transaction, many
from sixfold.core.media.media import record
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions import repository as predictions
from sixfold.core.shares import shares

# All places of a result that is published, shared, and stored for an idempotency key.
PLACES = {"file", "copy", "post", "tag", "avatar", "share", "reply"}


def _principal(account_id: str) -> Principal:
    return Principal(account_id, "customer", "", rights=rights.STANDARD)


def publish(account_id: str, file: OutputFile) -> Transaction[None]:
    """Put the result of a prediction in all locations where it is shown; its id is the blob of its file."""
    name = file.blob
    copy = OutputFile(f"copy-{file.name}", name, "image/png", 1)
    yield Query("media_insert", record(copy, account_id, "input"))
    yield from gallery.create_post(gallery.PostDraft(account_id, name, copy.name, "image/png", (name,)))
    yield from gallery.create_character(gallery.CharacterDraft(account_id, name, "", "", copy.name))
    yield from shares.create(_principal(account_id), shares.ShareDraft("run", name))
    yield from idempotency.begin(name, b"", "boot")
    yield from idempotency.finish(name, idempotency.StoredReply(200, {}, name.encode()))


def locations(name: str) -> Transaction[set[str]]:
    """Return where the result of a prediction is shown."""
    page: dict[str, Any] = {"before": "~", "limit": 1000}
    posts = yield from many("gallery_posts", **page)
    tagged = yield from many("gallery_posts_tagged", tag=name, **page)
    characters = yield from many("gallery_characters", **page)
    prediction = yield from predictions.get_any(name)
    shared = yield from shares.page(_principal(prediction.account_id), 1, None, "run", name)
    results = {
        "file": (yield from many("media_by_name", name=f"{name}.png")),
        "copy": (yield from many("media_by_name", name=f"copy-{name}.png")),
        "post": [row for row in posts if row["text"] == name],
        "tag": tagged,
        "avatar": [row for row in characters if row["name"] == name and row["avatar"]],
        "share": shared.shares,
        "reply": (yield from idempotency.find(name)),
    }
    return {location for location, result in results.items() if result}
