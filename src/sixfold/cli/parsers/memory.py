"""The argument parser of `memory`."""

from __future__ import annotations

from sixfold.cli.parsers.command_parser import CommandGroup, CommandParser


def add(group: CommandGroup) -> None:
    for add_one in (
        *(_search, _context, _answer, _read, _write, _edit, _tag, _link, _list),
        *(_remember, _forget, _hook, _import, _export, _sync),
    ):
        add_one(group).client()


def _search(group: CommandGroup) -> CommandParser:
    parser = group.report("search", "memory.commands:search", "find pages by a question or words")
    parser.argument("query", "WORD", nargs="+")
    parser.number("--limit", "maximum number of results", 10)
    parser.repeated("--tag", "only pages with this tag; may be repeated")
    parser.repeated("--type", "only pages of this type")
    parser.repeated("--collection", "only pages in this collection")
    parser.add_argument("--mode", choices=("auto", "lexical", "semantic", "hybrid"), default="auto")
    parser.flag("--explain", "show the score breakdown")
    return parser


def _context(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "context",
        "memory.commands:context",
        "print excerpts of pages that answer a question, for a model",
        "Excerpts of pages with their names; with --json, with the list of pages.",
    )
    parser.argument("query", "WORD", nargs="+")
    parser.number("--tokens", "the maximum number of tokens", 2000)
    parser.repeated("--tag", "only pages with this tag; may be repeated")
    parser.repeated("--type", "only pages of this type")
    parser.repeated("--collection", "only pages in this collection")
    return parser


def _answer(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "answer", "memory.facts:answer", "answer a question from the memory with a chat model, citing pages"
    )
    parser.argument("query", "WORD", nargs="+")
    parser.number("--tokens", "the maximum number of tokens for pages", 2000)
    return parser


def _remember(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "remember",
        "memory.facts:remember",
        "extract the facts of a text with a chat model, and write them to pages",
        "The text of FILE, or of standard input. `memory forget` takes the facts back.",
    )
    parser.argument("file", "FILE", "default: standard input", nargs="?", default="-")
    parser.argument("--folder", "SLUG", "the folder of the pages", default="facts")
    parser.argument("--source", "NAME", "the name of the text (default: that of FILE)")
    parser.argument("--date", "DATE", "the date of the text (default: today)")
    parser.add_argument("--collection", action="append", help="a collection for new pages; may be repeated")
    parser.argument("--max-usd", "USD", "the maximum cost in USD, such as 0.02")
    return parser


def _forget(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "forget", "memory.facts:forget", "undo a batch of `memory remember`, or list the batches"
    )
    parser.argument("batch", "BATCH", nargs="?")
    return parser


def _hook(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "hook",
        "memory.hooks:hook",
        "recall before and remember after a turn, as a hook of Claude Code or Codex",
        "Reads the event from standard input. UserPromptSubmit prints excerpts for the prompt; Stop extracts "
        "the facts of the turn.",
    )
    parser.number("--tokens", "the maximum number of tokens", 1500)
    parser.argument("--folder", "SLUG", "the folder of new pages", default="facts")
    parser.add_argument("--collection", action="append", help="only pages in this collection, also new ones")
    return parser


def _read(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "read", "memory.commands:read", "print a page as a Markdown file; --json adds its metadata"
    )
    parser.argument("slug", "SLUG")
    parser.argument(
        "--as-of", "TIME", "show the page as of a time, such as 2026-11-20T09:00:00Z, or the end of a date"
    )
    return parser


def _write(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "write",
        "memory.commands:write",
        "create a page from a file, or from standard input",
        "Front matter may set title, type, tags and collections.",
    )
    parser.argument("slug", "SLUG")
    parser.argument("file", "FILE", "default: standard input", nargs="?", default="-")
    parser.argument("--body", "TEXT", "the text of the page, in place of FILE")
    parser.add_argument("--title")
    parser.add_argument("--type", help="a type such as person, company or decision (default: note)")
    parser.add_argument("--tag", action="append", help="may be repeated")
    parser.add_argument("--collection", action="append", help="may be repeated")
    parser.flag("--overwrite", "replace an existing page")
    _version(parser)
    return parser


def _edit(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "edit", "memory.commands:edit", "change a part of a page", "Give one change at a time."
    )
    parser.argument("slug", "SLUG")
    parser.argument("--append", "TEXT", "append text; - reads standard input")
    parser.argument("--prepend", "TEXT", "insert text at the beginning")
    parser.argument("--find", "TEXT", "replace this text, which must occur once …")
    parser.argument("--replace", "TEXT", "… with this text")
    parser.flag("--all", "replace all occurrences of --find")
    parser.argument("--section", "HEADING", "replace the text under a heading …")
    parser.argument("--content", "TEXT", "… with this text; - reads standard input")
    parser.add_argument("--title", help="set the title")
    parser.add_argument("--type", help="set the type")
    parser.argument("--rename", "SLUG", "rename the page; links are updated")
    _version(parser)
    return parser


def _tag(group: CommandGroup) -> CommandParser:
    parser = group.report("tag", "memory.commands:tag", "add, remove or show the tags of a page")
    parser.argument("slug", "SLUG")
    parser.argument("tags", "TAG", nargs="*")
    parser.repeated("--remove", "remove a tag; may be repeated", "TAG")
    _version(parser)
    return parser


def _link(group: CommandGroup) -> CommandParser:
    parser = group.report("link", "memory.commands:link", "link a page to another, or show its links")
    parser.argument("slug", "SLUG")
    parser.argument("to", "TO", nargs="?")
    parser.add_argument("--type", help="a link type such as works_at (default: links_to)")
    parser.argument("--context", "TEXT", "a sentence that describes the link")
    parser.flag("--remove", "remove the link")
    _version(parser)
    return parser


def _list(group: CommandGroup) -> CommandParser:
    parser = group.report("list", "memory.commands:list_pages", "list pages by slug")
    parser.argument("prefix", "PREFIX", "a slug prefix such as people/", nargs="?", default="")
    parser.add_argument("--tag", help="only pages with this tag")
    parser.add_argument("--type", help="only pages of this type")
    parser.add_argument("--collection", help="only pages in this collection")
    parser.number("--limit", "maximum number of pages", 100)
    return parser


def _import(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "import",
        "memory.commands:import_files",
        "import documents and Markdown files: a file, a folder, a zip or a tar",
        "Documents are PDF, DOCX, HTML, EPUB, text and canvas files. A new version of a file replaces its "
        "pages.",
    )
    parser.argument("source", "FILE")
    parser.argument("--folder", "SLUG", "the folder of new pages, such as papers", default="")
    parser.repeated("--tag", "tag documents; may be repeated")
    parser.repeated("--collection", "a collection for documents; may be repeated")
    parser.flag("--markdown-only", "import an archive of Markdown files")
    return parser


def _export(group: CommandGroup) -> CommandParser:
    parser = group.report("export", "memory.commands:export", "export all pages as a zip of Markdown files")
    parser.argument("file", "FILE")
    parser.add_argument(
        "--format",
        choices=("markdown", "logseq"),
        default="markdown",
        help="the folders of the files: those of slugs, which Obsidian opens, or those of Logseq",
    )
    return parser


def _sync(group: CommandGroup) -> CommandParser:
    parser = group.report(
        "sync",
        "memory.commands:sync",
        "synchronize a folder and the memory in both directions",
        "If both changed the same lines, the local text is saved as NAME.conflict-HASH.md.",
    )
    parser.argument("folder", "DIR")
    parser.flag("--watch", "continue until Control-C")
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="seconds between syncs (default: 2)"
    )
    return parser


def _version(parser: CommandParser) -> None:
    parser.number("--if-version", "fail unless the page is at this version")
