"""Parsing of node classes from one line each, as in `data/nodes/*.toml`, into `NodeSpec`s.

name TYPE =default min..max /step %round flags; next? TYPE -> OUTPUT, OUTPUT:name, LIST[]
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sixfold.core.workflows.nodes import NodeInput, NodeOutput, NodeSpec

_STRING = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(rf"=?(?:{_STRING}|\[(?:{_STRING}|[^\]])*\]|[^\s;])+|;")
_RANGE = re.compile(r"(-?[\d.e+]*?\d)?\.\.(-?[\d.e+]+)?", re.ASCII)
_FLAGS: Mapping[str, tuple[str, Any]] = {
    "control": ("control_after_generate", True),
    "multiline": ("multiline", True),
    "socket": ("forceInput", True),
    "multiselect": ("multiselect", True),
    "image-file": ("image_upload", True),
    "audio-file": ("audio_upload", True),
    "video-file": ("video_upload", True),
    "file-file": ("file_upload", True),
}
Lists = Mapping[str, list[Any]]


def read(document: Mapping[str, Any]) -> Iterator[NodeSpec]:
    """Yield the classes of a document: a table per category, and named lists of choices in `lists`."""
    lists: Lists = document.get("lists", {})
    for category, rows in document.items():
        if category != "lists":
            for class_type, line in rows.items():
                yield parse(class_type, line, lists, category)


def parse(class_type: str, line: str, lists: Lists | None = None, category: str = "") -> NodeSpec:
    """Parse one class from its line; raises `ValueError`."""
    inputs_text, arrow, outputs_text = line.rpartition("->")
    if not arrow:
        raise ValueError(f"{class_type}: a signature must contain `->`")
    marks, inputs_part = _marks(inputs_text.strip())
    return NodeSpec(
        class_type,
        tuple(_input(words, lists or {}) for words in _split(inputs_part)),
        tuple(_output(each.strip()) for each in outputs_text.split(",") if each.strip()),
        output_node="!" in marks,
        input_is_list="[]" in marks,
        category=category,
    )


def _marks(text: str) -> tuple[str, str]:
    head, _, remainder = text.partition(" ")
    return (head, remainder) if head in ("!", "[]", "![]") else ("", text)


def _split(text: str) -> Iterator[list[str]]:
    words: list[str] = []
    for word in _TOKEN.findall(text):
        if word == ";":
            yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def _input(words: list[str], lists: Lists) -> NodeInput:
    name, kind, *options_text = words
    options: dict[str, Any] = {}
    choices: tuple[Any, ...] | None = None
    if kind.startswith("@"):
        kind, choices = "COMBO", tuple(lists[kind[1:]])
    elif kind.startswith("["):
        kind, choices = "COMBO", tuple(json.loads(kind))
    elif kind.startswith("<"):
        options["folder"] = kind.strip("<>")
        kind, choices = "COMBO", ()
    elif kind == "COMBO":
        choices = ()
    for word in options_text:
        options.update(_option(word))
    section = "optional" if name.endswith("?") else "required"
    return NodeInput(name.removesuffix("?"), kind, section, choices, options)


def _option(word: str) -> dict[str, Any]:
    if word.startswith("="):
        return {"default": json.loads(word[1:])}
    if word in _FLAGS:
        key, value = _FLAGS[word]
        return {key: value}
    if word[0] in "/%":
        return {"step" if word[0] == "/" else "round": json.loads(word[1:])}
    match = _RANGE.fullmatch(word)
    if match is None:
        raise ValueError(f"{word} is not valid in a signature")
    return {key: json.loads(end) for key, end in zip(("min", "max"), match.groups(), strict=True) if end}


def _output(text: str) -> NodeOutput:
    is_list = text.endswith("[]")
    kind, _, name = text.removesuffix("[]").partition(":")
    return NodeOutput(kind, name or kind, is_list)
