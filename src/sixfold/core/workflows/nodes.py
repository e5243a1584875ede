"""What a node is: its class's inputs and outputs, and the function behind it; all classes by name."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, TypeGuard

from sixfold.core.workflows.documents import listed
from sixfold.core.workflows.ports import ChildRequest, Run

_NEAR, _MOST_LETTERS = 0.4, 80
Section = Literal["required", "optional", "hidden"]
Where = Literal["inline", "thread", "await"]
Graph = Mapping[str, Mapping[str, Any]]

WIDGET_TYPES = frozenset({"INT", "FLOAT", "STRING", "BOOLEAN", "COMBO"})
_PLAIN_TYPES = frozenset({*WIDGET_TYPES, "*"})
UPLOADS = {
    "image_upload": "image",
    "video_upload": "video",
    "audio_upload": "audio",
    "file_upload": "file",
}


@dataclass(frozen=True, slots=True)
class NodeInput:
    """One input of a class. `type` is one of ComfyUI's, several with commas between, or `*` for any.

    `choices` are a COMBO's; `options` are what an object_info says beside the type (`default`, `min`,
    `max`, `step`, `multiline`, `control_after_generate`, `forceInput`, `image_upload`, …).
    """

    name: str
    type: str
    section: Section = "required"
    choices: tuple[Any, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_widget(self) -> bool:
        """Whether the editor shows it as a field rather than as a socket."""
        widget = self.type in WIDGET_TYPES or self.type.split(",")[0] in WIDGET_TYPES
        return widget and not self.options.get("forceInput")

    @property
    def has_control(self) -> bool:
        """Whether the editor keeps a word beside its value for what comes after a run."""
        if "control_after_generate" in self.options:
            return bool(self.options["control_after_generate"])
        return self.type == "INT" and self.name in ("seed", "noise_seed")

    @property
    def upload(self) -> str:
        """The kind of file that its text names: image, video, audio, file; empty when it names none."""
        return next((kind for option, kind in UPLOADS.items() if self.options.get(option)), "")


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """One output of a class."""

    type: str
    name: str = ""
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One class of nodes.

    `run` takes the node's context and its inputs by name; without one the class is only known by its schema.
    It runs `inline` (microseconds on small inputs), in a `thread` (pixels and sound), or is awaited (`await`:
    it orders work of the platform's models). One that `is_plain` is inline, and small inputs give it small
    outputs: it runs on the server's loop, all others in a session. `version` changes when the same inputs
    give something else.
    `fingerprint` adds to the key of the cache what the inputs do not say; None from it is never cached.
    `estimate` says what a node that is awaited will order.
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
        object.__setattr__(self, "by_name", {each.name: each for each in self.inputs})
        object.__setattr__(self, "uploads", {each.name: each.upload for each in self.inputs if each.upload})
        object.__setattr__(self, "gives_lists", any(output.is_list for output in self.outputs))
        types = {output.type for output in self.outputs}
        plain = self.where == "inline" and not self.gives_lists and types <= _PLAIN_TYPES
        object.__setattr__(self, "is_plain", plain)


class Registry:
    """Classes by name."""

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
        """The class of this name, or None."""
        return self._specs.get(class_type)

    def joined(self, others: Iterable[NodeSpec]) -> Registry:
        """These classes and `others`, which win where both have one."""
        return Registry([*self._specs.values(), *others])

    def index(self) -> None:
        """Build now what `nearest` would build at its first call."""
        _ = self._by_pair

    def nearest(self, class_type: str) -> str:
        """The class whose name is most like this one; empty when none is near."""
        mine = _letter_pairs(class_type[:_MOST_LETTERS])
        shared = Counter(chain.from_iterable(self._by_pair.get(pair, ()) for pair in mine))
        least = _NEAR * len(mine) / 2  # what shares fewer is not near, however short
        near = [(name, count) for name, count in shared.items() if count > least]
        best, text = _NEAR, ""
        for name, count in near:
            likeness = 2 * count / (len(mine) + len(_letter_pairs(name)))
            if likeness > best or (likeness == best and text and name < text):
                best, text = likeness, name
        return text

    @functools.cached_property
    def _by_pair(self) -> Mapping[str, list[str]]:
        """The classes by each pair of letters in their names."""
        found: dict[str, list[str]] = {}
        for name in self._specs:
            for pair in _letter_pairs(name):
                found.setdefault(pair, []).append(name)
        return found


def nearest(wanted: object, options: Iterable[object]) -> str:
    """The option whose text shares most pairs of letters with `wanted`; empty when none is near."""
    mine = _letter_pairs(str(wanted)[:_MOST_LETTERS])
    best, text = _NEAR, ""
    for option in map(str, options):
        theirs = _letter_pairs(option)
        likeness = 2 * len(mine & theirs) / (len(mine) + len(theirs))
        if likeness > best:
            best, text = likeness, option
    return text


@functools.lru_cache(maxsize=4096)
def _letter_pairs(text: str) -> frozenset[str]:
    """The pairs of letters of a text, its ends counted."""
    known = f" {text[:_MOST_LETTERS].lower()} "
    return frozenset(known[at : at + 2] for at in range(len(known) - 1))


def is_link(value: object) -> TypeGuard[list[Any]]:
    """Whether an input's value is a link to another node's output."""
    ends = listed(value)
    return len(ends) == 2 and isinstance(ends[0], str | int)
