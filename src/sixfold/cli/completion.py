"""`completion`: completion scripts for bash, zsh and fish, generated from the argument parser."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from sixfold.cli.main import build_parser

_DATA = Path(__file__).parents[1] / "data"
_MODELS = frozenset({" run"})
_SPACES = frozenset({" workflow run", " workflow show", " workflow verify"})


class CompletionContext(msgspec.Struct, frozen=True):
    """A position in the command line: the words so far (`path`), and the next words and options with help."""

    path: str
    next: Mapping[str, str]
    options: Mapping[str, str]


def completion(arguments: argparse.Namespace) -> None:
    """Run `completion`: print the script for a shell."""
    sys.stdout.write(_SHELLS[arguments.shell](tuple(positions(build_parser()))))


def positions(parser: argparse.ArgumentParser, path: str = "") -> Iterator[CompletionContext]:
    """Yield every position in a parser's command line, beginning with that after `path`."""
    following: dict[str, str] = {}
    options: dict[str, str] = {}
    children: dict[str, argparse.ArgumentParser] = {}
    # argparse does not have a public way to list actions.
    for action in parser._actions:
        help_text = (action.help or "").partition(" (")[0]
        if isinstance(action, argparse._SubParsersAction):
            children = action.choices
            following |= {row.dest: row.help or "" for row in action._choices_actions}
        elif action.option_strings:
            options |= {name: help_text for name in action.option_strings if name.startswith("--")}
        elif action.choices:
            following |= {str(choice): "" for choice in action.choices}
    yield CompletionContext(path, {**following, **_names(path)}, options)
    for name, child in children.items():
        yield from positions(child, f"{path} {name}")


def _names(path: str) -> Mapping[str, str]:
    if path in _SPACES:
        return {positions.stem: "" for positions in sorted((_DATA / "workflows").glob("*.json"))}
    if path not in _MODELS:
        return {}
    tables = (tomllib.loads(file.read_text("utf-8")) for file in sorted((_DATA / "models").glob("*.toml")))
    return {name: "" for table in tables for name in table.get("models", {})}


# -- the shells ------------------------------------------------------------------------------------


def _bash(positions: tuple[CompletionContext, ...]) -> str:
    paths = "|".join(f'"{place.path}"' for place in positions if place.path)
    cases = "\n".join(
        f'    "{place.path}") next="{" ".join(place.next)}" options="{" ".join(place.options)}" ;;'
        for place in positions
    )
    return f"""# Completion of sixfold for bash: eval "$(sixfold completion bash)"
_sixfold() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} at="" next="" options="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$at $word" in {paths}) at="$at $word" ;; esac
  done
  case "$at" in
{cases}
  esac
  if [[ $current == @* ]]; then COMPREPLY=($(compgen -P @ -f -- "${{current#@}}")); return; fi
  if [[ $current == -* ]]; then next=$options; fi
  COMPREPLY=($(compgen -W "$next" -- "$current"))
}}
complete -o default -F _sixfold sixfold
"""


def _zsh(positions: tuple[CompletionContext, ...]) -> str:
    paths = "|".join(f'"{place.path}"' for place in positions if place.path)
    cases = "\n".join(
        f"    {_quoted(place.path)}) next=({_described(place.next)}) options=({_described(place.options)}) ;;"
        for place in positions
    )
    return f"""#compdef sixfold
# Completion of sixfold for zsh: eval "$(sixfold completion zsh)", behind compinit
_sixfold() {{
  local at="" word
  local -a next options
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$at $word" in ({paths}) at="$at $word" ;; esac
  done
  case "$at" in
{cases}
  esac
  if [[ ${{words[CURRENT]}} == -* ]]; then
    _describe -o option options
  elif (( $#next )); then
    _describe command next || _files
  else
    _files
  fi
}}
compdef _sixfold sixfold
"""


def _fish(positions: tuple[CompletionContext, ...]) -> str:
    paths = " ".join(_quoted(place.path) for place in positions if place.path)
    lines = [
        f"complete -c sixfold -n '__sixfold_at {_quoted(place.path, inner=True)}' {_fish_word(word, text)}"
        for place in positions
        for word, text in {**place.next, **place.options}.items()
    ]
    script = "\n".join(lines)
    return f"""# Completion of sixfold for fish: sixfold completion fish | source
function __sixfold_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        if contains -- "$at $word" {paths}
            set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end
{script}
"""


def _fish_word(word: str, help_text: str) -> str:
    option = f"-l {word[2:]}" if word.startswith("--") else f"-a {_quoted(word)}"
    return f"{option} -d {_quoted(help_text)}" if help_text else option


def _described(words: Mapping[str, str]) -> str:
    return " ".join(
        _quoted(f"{word}:{help_text}" if help_text else word) for word, help_text in words.items()
    )


def _quoted(text: str, *, inner: bool = False) -> str:
    """Quote a string for a shell; with `inner`, the result may be used inside single quotes."""
    return f'"{text}"' if inner else "'" + text.replace("'", "’") + "'"


_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
