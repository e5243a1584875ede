"""`memory remember`, `forget` and `answer`, which use the chat model of a server."""

from __future__ import annotations

import argparse
from pathlib import Path

from sixfold.cli.client import ServerClient
from sixfold.cli.memory.commands import text_of
from sixfold.cli.terminal import TerminalStyle, put_json


def remember(arguments: argparse.Namespace) -> int:
    """Run `memory remember`: print the facts that were written, and those that were rejected."""
    body = {
        "text": text_of(arguments.file),
        "folder": arguments.folder,
        "source": arguments.source or ("" if arguments.file == "-" else Path(arguments.file).stem),
        "date": arguments.date,
        "collections": arguments.collection,
        "max_usd": arguments.max_usd,
    }
    response = ServerClient.of(arguments).post("/api/remember", body)
    if arguments.json:
        put_json(response)
        return 0
    paint = TerminalStyle()
    for row in response["added"]:
        paint.line(f"  + {paint.bold(row['slug'])}  {row['date']}  {row['statement']}")
    for row in response["superseded"]:
        paint.line(f"  ↓ {paint.bold(row['slug'])}  until {row['until']}: {row['statement']}")
    for row in response["dropped"]:
        paint.line(paint.dim(f"  - {row['statement']} ({row['reason']})"))
    if response["stopped"]:
        paint.line(
            f"  Read {response['read_chars']} of {response['chars']} characters: {response['stopped']}"
        )
    paint.line(
        f"  {len(response['added'])} facts added, {response['known']} known; {response['cost_usd']} USD; "
        f"undo: sixfold memory forget {response['batch']}"
    )
    return 0


def forget(arguments: argparse.Namespace) -> int:
    """Run `memory forget`: undo a batch, or list the batches."""
    client = ServerClient.of(arguments)
    if arguments.batch is not None:
        response = client.post("/api/remember/undo", {"batch": arguments.batch})
    else:
        response = client.get("/api/remember")
    if arguments.json:
        put_json(response)
        return 0
    paint = TerminalStyle()
    if arguments.batch is None and not response["batches"]:
        paint.line("  No batches: `sixfold memory remember` writes one")
        return 0
    if arguments.batch is None:
        names = ("batch", "created_at", "state", "folder", "source", "cost_usd")
        paint.table(names, [tuple(row[name] for name in names) for row in response["batches"]])
        return 0
    for name in ("restored", "deleted"):
        for slug in response[name]:
            paint.line(f"  {name}  {slug}")
    return 0


def answer(arguments: argparse.Namespace) -> int:
    """Run `memory answer`: print an answer and the pages that it cites."""
    body = {"question": " ".join(arguments.query), "tokens": arguments.tokens}
    response = ServerClient.of(arguments).post("/api/answer", body)
    if arguments.json:
        put_json(response)
        return 0
    paint = TerminalStyle()
    for sentence in response["sentences"]:
        paint.line(f"  {sentence['text']} {sentence['sources']}")
    if not response["known"]:
        paint.line(f"  {response['text']}")
    cited = {str(number) for sentence in response["sentences"] for number in sentence["sources"]}
    for source in response["sources"]:
        if isinstance(source, dict) and str(source["number"]) in cited:
            paint.line(paint.dim(f"    [{source['number']}] {source['slug']}"))
    return 0
