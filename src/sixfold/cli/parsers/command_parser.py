"""Argument parsers of commands, with the kinds of arguments that commands share.

A command refers to its function as `module:function` of `sixfold.cli`; `dispatch` imports and calls it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from sixfold import near_names


class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    def add_rest(self, arguments: argparse.Namespace, words: Sequence[str]) -> None:
        """Add the words after an option to the last argument, if it takes several, or refuse them.

        `argparse` ends such an argument at the first option, so that `run ra1 -o a.png prompt=x` fails.
        """
        last = next((each for each in reversed(self._actions) if not each.option_strings), None)
        if last is None or last.nargs not in ("*", "+") or any(word.startswith("-") for word in words):
            self._refuse_unknown(words)
        setattr(arguments, last.dest, [*getattr(arguments, last.dest), *words])

    def _refuse_unknown(self, words: Sequence[str]) -> NoReturn:
        names = [word.partition("=")[0] for word in words if word.startswith("--")]
        questions = [near_names.question(name, self._option_string_actions) for name in names]
        advice = "; ".join(filter(None, questions))
        self.error(f"unrecognized arguments: {' '.join(words)}{advice and f'; {advice}'}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise `ArgumentError` for an unknown command or choice, with similar ones if there are any."""
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            advice = near_names.question(str(value), choices, f"choose from {', '.join(choices)}")
            raise argparse.ArgumentError(action, f"invalid choice {str(value)!r}; {advice}")

    def argument(self, name: str, metavar: str, text: str | None = None, **options: Any) -> None:
        """Add an argument or option with a value."""
        self.add_argument(name, metavar=metavar, help=text, **options)

    def number(self, name: str, text: str, default: int | None = None) -> None:
        """Add an option with a whole number; its help shows the default."""
        text = text if default is None else f"{text} (default: {default})"
        self.add_argument(name, type=int, default=default, metavar="N", help=text)

    def flag(self, name: str, text: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=text)

    def repeated(self, name: str, text: str, metavar: str | None = None) -> None:
        """Add an option that may be repeated, with a list as its value."""
        self.add_argument(name, action="append", default=[], metavar=metavar, help=text)

    def client(self) -> None:
        """Add the option of commands that call a server."""
        self.argument("--api-url", "URL", "the server's URL (default: the server on this machine)")


class CommandGroup:
    """A set of commands below a parser."""

    def __init__(self, parser: argparse.ArgumentParser, dest: str, *, required: bool) -> None:
        self._parsers = parser.add_subparsers(
            dest=dest, metavar="COMMAND", title="commands", required=required, parser_class=CommandParser
        )

    def group(self, name: str, summary: str) -> CommandGroup:
        """Add a command with subcommands."""
        parser = self._parsers.add_parser(name, help=summary, description=f"{_sentence(summary)}.")
        return CommandGroup(parser, "subcommand", required=True)

    def command(self, name: str, target: str, summary: str, detail: str = "") -> CommandParser:
        """Add a command."""
        parser = self._parsers.add_parser(
            name, help=summary, description=f"{_sentence(summary)}. {detail}".strip()
        )
        parser.set_defaults(target=target, parser=parser)
        parser.argument(
            "--data-dir", "DIR", "the server's data folder (default: SIXFOLD_DATA_DIR, or .sixfold)"
        )
        return parser

    def report(self, name: str, target: str, summary: str, detail: str = "") -> CommandParser:
        """Add a command that can print its result as JSON."""
        parser = self.command(name, target, summary, detail)
        parser.flag("--json", "print one JSON document instead of text")
        return parser


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}"
