"""The argument parser of `memory`, separate from the commands so that help needs no imports."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

Asking = Callable[..., argparse.ArgumentParser]
# argparse's class for a set of commands is private.
Group = Any


def add(group: Group, asking: Asking, client: Callable[[argparse.ArgumentParser], None]) -> None:
    """Add the commands of the `memory` group."""
    for add_one in (_search, _read, _write, _edit, _tag, _link, _list, _import, _export, _sync):
        client(add_one(group, asking))


def _search(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(group, "search", "memory.commands:search", "find pages by a question or words")
    parser.add_argument("query", nargs="+", metavar="WORD")
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="how many results (default: 10)")
    parser.add_argument(
        "--tag", action="append", default=[], help="only pages with this tag; may be repeated"
    )
    parser.add_argument("--type", action="append", default=[], help="only pages of this type")
    parser.add_argument("--collection", action="append", default=[], help="only pages in this collection")
    parser.add_argument("--mode", choices=("auto", "lexical", "semantic", "hybrid"), default="auto")
    parser.add_argument("--explain", action="store_true", help="tell every part of each score")
    return parser


def _read(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(
        group, "read", "memory.commands:read", "print a page as a markdown file; with --json, all of it"
    )
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("--as-of", metavar="TIME", help="as it was then, as in 2026-11-20T09:00:00Z")
    return parser


def _write(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(
        group,
        "write",
        "memory.commands:write",
        "create a page from a file, or from standard input",
        "Front matter in it may set title, type, tags and collections.",
    )
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: standard input")
    parser.add_argument("--title")
    parser.add_argument("--type", help="as in person, company, decision (default: note)")
    parser.add_argument("--tag", action="append", help="may be repeated")
    parser.add_argument("--collection", action="append", help="may be repeated")
    parser.add_argument("--overwrite", action="store_true", help="replace a page that is there")
    _version(parser)
    return parser


def _edit(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(
        group, "edit", "memory.commands:edit", "change a part of a page", "One of these at a time."
    )
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("--append", metavar="TEXT", help="add a text at the end; - reads standard input")
    parser.add_argument("--prepend", metavar="TEXT", help="add a text at the beginning")
    parser.add_argument("--find", metavar="TEXT", help="replace this text, which stands there once …")
    parser.add_argument("--replace", metavar="TEXT", help="… with this one")
    parser.add_argument("--all", action="store_true", help="… wherever it stands")
    parser.add_argument("--section", metavar="HEADING", help="replace what stands under a heading …")
    parser.add_argument("--content", metavar="TEXT", help="… with this text; - reads standard input")
    parser.add_argument("--title", help="give it another title")
    parser.add_argument("--type", help="give it another type")
    parser.add_argument("--rename", metavar="SLUG", help="give it another slug; links follow")
    _version(parser)
    return parser


def _tag(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(group, "tag", "memory.commands:tag", "add tags to a page, or show what it has")
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("tags", nargs="*", metavar="TAG")
    parser.add_argument("--remove", action="append", default=[], metavar="TAG", help="take one off")
    _version(parser)
    return parser


def _link(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(group, "link", "memory.commands:link", "link a page with another, or show its links")
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("to", nargs="?", metavar="TO")
    parser.add_argument("--type", help="as in works_at (default: links_to)")
    parser.add_argument("--context", metavar="TEXT", help="why, in a sentence")
    parser.add_argument("--remove", action="store_true", help="take the link back")
    _version(parser)
    return parser


def _list(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(group, "list", "memory.commands:list_pages", "list pages by slug")
    parser.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="as in people/")
    parser.add_argument("--tag", help="only pages with this tag")
    parser.add_argument("--type", help="only pages of this type")
    parser.add_argument("--collection", help="only pages in this collection")
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="how many (default: 100)")
    return parser


def _import(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(
        group, "import", "memory.commands:import_files", "take in a folder, a zip or a tar of markdown files"
    )
    parser.add_argument("source", metavar="FILE")
    return parser


def _export(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(group, "export", "memory.commands:export", "save every page in a zip of markdown files")
    parser.add_argument("file", metavar="FILE")
    return parser


def _sync(group: Group, asking: Asking) -> argparse.ArgumentParser:
    parser = asking(
        group,
        "sync",
        "memory.commands:sync",
        "keep a folder and the memory alike, both ways",
        "Where both have changed the same lines, the folder's text stays beside as NAME.conflict-HASH.md.",
    )
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--watch", action="store_true", help="go on until Control-C")
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="how often to look (default: 2)"
    )
    return parser


def _version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--if-version", type=int, metavar="N", help="only if it is still at this version")
