"""Node classes: their inputs, outputs and functions, and the registry of all classes by name."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, TypeGuard

import msgspec

from sixfold.core.workflows.documents import as_list
from sixfold.core.workflows.ports import ChildRequest, Run

_NEAR, _MAX_LETTERS = 0.4, 80
Section = Literal["required", "optional", "hidden"]
Where = Literal["inline", "thread", "await"]
Graph = Mapping[str, Mapping[str, Any]]

WIDGET_TYPES = frozenset({"INT", "FLOAT", "STRING", "BOOLEAN", "COMBO"})
_PLAIN_TYPES = frozenset({*WIDGET_TYPES, "*"})
UPLOADS = {"image_upload": "image", "video_upload": "video", "audio_upload": "audio", "file_upload": "file"}


class NodeInput(msgspec.Struct, frozen=True):
    """An input of a class. `type` is a type of ComfyUI, a list of types separated by commas, or `*`.

    `choices` are the choices of a COMBO. `options` are the fields of `/object_info` other than the type
    (`default`, `min`, `max`, `step`, `multiline`, `control_after_generate`, `forceInput`, `image_upload`, …).
    """

    name: str
    type: str
    section: Section = "required"
    choices: tuple[Any, ...] | None = None
    options: Mapping[str, Any] = {}

    @property
    def is_widget(self) -> bool:
        """Whether the editor shows the input as a field instead of a socket."""
        widget = self.type in WIDGET_TYPES or self.type.split(",")[0] in WIDGET_TYPES
        return widget and not self.options.get("forceInput")

    @property
    def has_control(self) -> bool:
        """Whether the editor adds a `control_after_generate` value to this input."""
        if "control_after_generate" in self.options:
            return bool(self.options["control_after_generate"])
        return self.type == "INT" and self.name in ("seed", "noise_seed")

    @property
    def upload(self) -> str:
        """The kind of file that this input accepts as an upload: image, video, audio or file.

        It is empty for inputs without uploads.
        """
        return next((kind for option, kind in UPLOADS.items() if self.options.get(option)), "")


class NodeOutput(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A class of nodes.

    `run` is called with the node's context and its inputs by name; if it is None, only the schema of the
    class is known. A class runs `inline` (microseconds for small inputs), in a `thread` (images and audio),
    or asynchronously (`await`: it starts child runs). A class that `is_plain` is inline and returns small
    outputs for small inputs: it runs on the event loop, all others in a session. `version` must change if the
    same inputs produce different outputs. `fingerprint` adds state outside the inputs to the cache key; if it
    returns None, the output is not cached. `estimate` returns the child runs of an asynchronous node.
    """

    class_type: str
    inputs: tuple[NodeInput, ...] = ()
    outputs: tuple[NodeOutput, ...] = ()
    version: str = "1"
    output_node: bool = False
    run: Run | None = None
    where: Where = "inline"
    fingerprint: Callable[[Mapping[str, Any]], str | None] | None = None
    estimate: Callable[[Mapping[str, Any]], tuple[ChildRequest, ...]] | None = None
    input_is_list: bool = False
    category: str = ""
    title: str = ""
    description: str = ""
    module: str = "nodes"
    by_name: Mapping[str, NodeInput] = field(default_factory=dict[str, NodeInput], compare=False, repr=False)
    uploads: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)
    gives_lists: bool = field(default=False, compare=False, repr=False)
    is_plain: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Index the inputs, and those that name files."""
        object.__setattr__(self, "by_name", {node_input.name: node_input for node_input in self.inputs})
        object.__setattr__(
            self,
            "uploads",
            {node_input.name: node_input.upload for node_input in self.inputs if node_input.upload},
        )
        object.__setattr__(self, "gives_lists", any(output.is_list for output in self.outputs))
        types = {output.type for output in self.outputs}
        plain = self.where == "inline" and not self.gives_lists and types <= _PLAIN_TYPES
        object.__setattr__(self, "is_plain", plain)


class Registry:
    """All node classes by name."""

    def __init__(self, specs: Iterable[NodeSpec] = ()) -> None:
        self._specs = {spec.class_type: spec for spec in specs}

    def __getitem__(self, class_type: str) -> NodeSpec:
        return self._specs[class_type]

    def __contains__(self, class_type: object) -> bool:
        return class_type in self._specs

    def __iter__(self) -> Iterator[NodeSpec]:
        return iter(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)

    def get(self, class_type: str) -> NodeSpec | None:
        return self._specs.get(class_type)

    def joined(self, others: Iterable[NodeSpec]) -> Registry:
        """Return a registry of these classes and `others`, which take precedence."""
        return Registry([*self._specs.values(), *others])

    def index(self) -> None:
        """Build the index that `nearest` uses."""
        _ = self._by_pair

    def nearest(self, class_type: str) -> str:
        """Return the class with the most similar name, or an empty string if none is similar."""
        mine = _letter_pairs(class_type[:_MAX_LETTERS])
        shared = Counter(chain.from_iterable(self._by_pair.get(pair, ()) for pair in mine))
        # Names with fewer shared pairs cannot be similar enough.
        minimum = _NEAR * len(mine) / 2
        near = [(name, count) for name, count in shared.items() if count > minimum]
        best, text = _NEAR, ""
        for name, count in near:
            likeness = 2 * count / (len(mine) + len(_letter_pairs(name)))
            if likeness > best or (likeness == best and text and name < text):
                best, text = likeness, name
        return text

    @functools.cached_property
    def _by_pair(self) -> Mapping[str, list[str]]:
        """The classes by each pair of letters in their names."""
        by_pair: dict[str, list[str]] = {}
        for name in self._specs:
            for pair in _letter_pairs(name):
                by_pair.setdefault(pair, []).append(name)
        return by_pair


def nearest(value: object, options: Iterable[object]) -> str:
    """Return the option that shares most letter pairs with `value`, or an empty string if none is similar."""
    mine = _letter_pairs(str(value)[:_MAX_LETTERS])
    best, text = _NEAR, ""
    for option in map(str, options):
        theirs = _letter_pairs(option)
        likeness = 2 * len(mine & theirs) / (len(mine) + len(theirs))
        if likeness > best:
            best, text = likeness, option
    return text


@functools.lru_cache(maxsize=4096)
def _letter_pairs(text: str) -> frozenset[str]:
    """Return the pairs of adjacent letters of a text, including its start and end."""
    words = f" {text[:_MAX_LETTERS].lower()} "
    return frozenset(words[at : at + 2] for at in range(len(words) - 1))


def is_link(value: object) -> TypeGuard[list[Any]]:
    """Return whether an input's value is a link to another node's output."""
    ends = as_list(value)
    return len(ends) == 2 and isinstance(ends[0], str | int)
