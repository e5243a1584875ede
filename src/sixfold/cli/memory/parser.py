"""The argument parser of `memory`, in a separate module so that help does not import the commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

CommandFactory = Callable[..., argparse.ArgumentParser]
# argparse's class for a set of commands is private.
Group = Any


def add(group: Group, command: CommandFactory, client: Callable[[argparse.ArgumentParser], None]) -> None:
    for add_one in (
        *(_search, _context, _answer, _read, _write, _edit, _tag, _link, _list),
        *(_remember, _forget, _hook, _import, _export, _sync),
    ):
        client(add_one(group, command))


def _search(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(group, "search", "memory.commands:search", "find pages by a question or words")
    parser.add_argument("query", nargs="+", metavar="WORD")
    parser.add_argument(
        "--limit", type=int, default=10, metavar="N", help="maximum number of results (default: 10)"
    )
    parser.add_argument(
        "--tag", action="append", default=[], help="only pages with this tag; may be repeated"
    )
    parser.add_argument("--type", action="append", default=[], help="only pages of this type")
    parser.add_argument("--collection", action="append", default=[], help="only pages in this collection")
    parser.add_argument("--mode", choices=("auto", "lexical", "semantic", "hybrid"), default="auto")
    parser.add_argument("--explain", action="store_true", help="show the score breakdown")
    return parser


def _context(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group,
        "context",
        "memory.commands:context",
        "print excerpts of pages that answer a question, for a model",
        "Excerpts of pages with their names; with --json, with the list of pages.",
    )
    parser.add_argument("query", nargs="+", metavar="WORD")
    parser.add_argument(
        "--tokens", type=int, default=2000, metavar="N", help="the maximum number of tokens (default: 2000)"
    )
    parser.add_argument(
        "--tag", action="append", default=[], help="only pages with this tag; may be repeated"
    )
    parser.add_argument("--type", action="append", default=[], help="only pages of this type")
    parser.add_argument("--collection", action="append", default=[], help="only pages in this collection")
    return parser


def _answer(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group,
        "answer",
        "memory.facts:answer",
        "answer a question from the memory with a chat model, citing pages",
    )
    parser.add_argument("query", nargs="+", metavar="WORD")
    parser.add_argument(
        "--tokens",
        type=int,
        default=2000,
        metavar="N",
        help="the maximum number of tokens for pages (default: 2000)",
    )
    return parser


def _remember(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group,
        "remember",
        "memory.facts:remember",
        "extract the facts of a text with a chat model, and write them to pages",
        "The text of FILE, or of standard input. `memory forget` takes the facts back.",
    )
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: standard input")
    parser.add_argument("--folder", default="facts", metavar="SLUG", help="the folder of the pages")
    parser.add_argument("--source", metavar="NAME", help="the name of the text (default: that of FILE)")
    parser.add_argument("--date", metavar="DATE", help="the date of the text (default: today)")
    parser.add_argument("--collection", action="append", help="a collection for new pages; may be repeated")
    parser.add_argument("--max-usd", metavar="USD", help="the maximum cost in USD, such as 0.02")
    return parser


def _forget(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group, "forget", "memory.facts:forget", "undo a batch of `memory remember`, or list the batches"
    )
    parser.add_argument("batch", nargs="?", metavar="BATCH")
    return parser


def _hook(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group,
        "hook",
        "memory.hooks:hook",
        "recall before and remember after a turn, as a hook of Claude Code or Codex",
        "Reads the event from standard input. UserPromptSubmit prints excerpts for the prompt; Stop extracts "
        "the facts of the turn.",
    )
    parser.add_argument(
        "--tokens", type=int, default=1500, metavar="N", help="the maximum number of tokens (default: 1500)"
    )
    parser.add_argument("--folder", default="facts", metavar="SLUG", help="the folder of new pages")
    parser.add_argument("--collection", action="append", help="only pages in this collection, also new ones")
    return parser


def _read(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group,
        "read",
        "memory.commands:read",
        "print a page as a Markdown file; --json adds its metadata",
    )
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        help="show the page as of a time, such as 2026-11-20T09:00:00Z, or the end of a date",
    )
    return parser


def _write(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group,
        "write",
        "memory.commands:write",
        "create a page from a file, or from standard input",
        "Front matter may set title, type, tags and collections.",
    )
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: standard input")
    parser.add_argument("--body", metavar="TEXT", help="the text of the page, in place of FILE")
    parser.add_argument("--title")
    parser.add_argument("--type", help="a type such as person, company or decision (default: note)")
    parser.add_argument("--tag", action="append", help="may be repeated")
    parser.add_argument("--collection", action="append", help="may be repeated")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing page")
    _version(parser)
    return parser


def _edit(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group, "edit", "memory.commands:edit", "change a part of a page", "Give one change at a time."
    )
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("--append", metavar="TEXT", help="append text; - reads standard input")
    parser.add_argument("--prepend", metavar="TEXT", help="insert text at the beginning")
    parser.add_argument("--find", metavar="TEXT", help="replace this text, which must occur once …")
    parser.add_argument("--replace", metavar="TEXT", help="… with this text")
    parser.add_argument("--all", action="store_true", help="replace all occurrences of --find")
    parser.add_argument("--section", metavar="HEADING", help="replace the text under a heading …")
    parser.add_argument("--content", metavar="TEXT", help="… with this text; - reads standard input")
    parser.add_argument("--title", help="set the title")
    parser.add_argument("--type", help="set the type")
    parser.add_argument("--rename", metavar="SLUG", help="rename the page; links are updated")
    _version(parser)
    return parser


def _tag(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(group, "tag", "memory.commands:tag", "add, remove or show the tags of a page")
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("tags", nargs="*", metavar="TAG")
    parser.add_argument(
        "--remove", action="append", default=[], metavar="TAG", help="remove a tag; may be repeated"
    )
    _version(parser)
    return parser


def _link(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(group, "link", "memory.commands:link", "link a page to another, or show its links")
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("to", nargs="?", metavar="TO")
    parser.add_argument("--type", help="a link type such as works_at (default: links_to)")
    parser.add_argument("--context", metavar="TEXT", help="a sentence that describes the link")
    parser.add_argument("--remove", action="store_true", help="remove the link")
    _version(parser)
    return parser


def _list(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(group, "list", "memory.commands:list_pages", "list pages by slug")
    parser.add_argument(
        "prefix", nargs="?", default="", metavar="PREFIX", help="a slug prefix such as people/"
    )
    parser.add_argument("--tag", help="only pages with this tag")
    parser.add_argument("--type", help="only pages of this type")
    parser.add_argument("--collection", help="only pages in this collection")
    parser.add_argument(
        "--limit", type=int, default=100, metavar="N", help="maximum number of pages (default: 100)"
    )
    return parser


def _import(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group,
        "import",
        "memory.commands:import_files",
        "import documents and Markdown files: a file, a folder, a zip or a tar",
        "Documents are PDF, DOCX, HTML, EPUB, text and canvas files. A new version of a file replaces its "
        "pages.",
    )
    parser.add_argument("source", metavar="FILE")
    parser.add_argument(
        "--folder", default="", metavar="SLUG", help="the folder of new pages, such as papers"
    )
    parser.add_argument("--tag", action="append", default=[], help="tag documents; may be repeated")
    parser.add_argument(
        "--collection", action="append", default=[], help="a collection for documents; may be repeated"
    )
    parser.add_argument("--markdown-only", action="store_true", help="import an archive of Markdown files")
    return parser


def _export(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(group, "export", "memory.commands:export", "export all pages as a zip of Markdown files")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--format",
        choices=("markdown", "logseq"),
        default="markdown",
        help="the folders of the files: those of slugs, which Obsidian opens, or those of Logseq",
    )
    return parser


def _sync(group: Group, command: CommandFactory) -> argparse.ArgumentParser:
    parser = command(
        group,
        "sync",
        "memory.commands:sync",
        "synchronize a folder and the memory in both directions",
        "If both changed the same lines, the local text is saved as NAME.conflict-HASH.md.",
    )
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--watch", action="store_true", help="continue until Control-C")
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="seconds between syncs (default: 2)"
    )
    return parser


def _version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--if-version", type=int, metavar="N", help="fail unless the page is at this version")
