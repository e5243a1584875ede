"""Validation of a prompt before ComfyUI queues it, after its execution.py: for the fake, and for tests that
validate the product's graphs against the schemas of real servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Prompt = Mapping[str, Mapping[str, Any]]
Schemas = Mapping[str, Mapping[str, Any]]
Problem = dict[str, Any]
_PRIMITIVES: dict[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}


@dataclass
class Verdict:
    """Result of a validation: `error` is None if some output can run; `outputs` are those nodes."""

    error: Problem | None
    nodes: dict[str, Any] = field(default_factory=dict[str, Any])
    outputs: tuple[str, ...] = ()


def validate(prompt: Prompt, schemas: Schemas, has_file: Callable[[str], bool]) -> Verdict:
    """Validate a prompt as ComfyUI does; `has_file` returns whether LoadImage would find an image."""
    for node, spec in prompt.items():
        class_type = spec.get("class_type")
        if class_type not in schemas:
            message = f"Cannot execute because node {class_type} does not exist."
            return Verdict(_problem("invalid_prompt", message, f"Node ID '#{node}'"))
    outputs = [node for node, spec in prompt.items() if schemas[spec["class_type"]]["output_node"]]
    if not outputs:
        return Verdict(_problem("prompt_no_outputs", "Prompt has no outputs", ""))
    check = _Check(prompt, schemas, has_file)
    good = tuple(node for node in outputs if check.holds(node))
    nodes = {
        node: {
            "errors": errors,
            "dependent_outputs": [output for output in outputs if output not in good],
            "class_type": prompt[node]["class_type"],
        }
        for node, errors in check.errors.items()
        if errors
    }
    if good:
        return Verdict(None, nodes, good)
    message = "Prompt outputs failed validation"
    return Verdict(_problem("prompt_outputs_failed_validation", message, ""), nodes)


def _problem(kind: str, message: str, details: str, **extra: Any) -> Problem:
    return {"type": kind, "message": message, "details": details, "extra_info": extra}


class _Check:
    def __init__(self, prompt: Prompt, schemas: Schemas, has_file: Callable[[str], bool]) -> None:
        self._prompt = prompt
        self._schemas = schemas
        self._has_file = has_file
        self.errors: dict[str, list[Problem]] = {}

    def holds(self, node: str) -> bool:
        """Return whether a node and all its inputs are valid."""
        if node in self.errors:
            return not self.errors[node]
        self.errors[node] = []
        spec = self._prompt[node]
        inputs = self._schemas[spec["class_type"]]["input"]
        sound = True
        for part in ("required", "optional"):
            for name, expected in inputs.get(part, {}).items():
                if name not in spec["inputs"]:
                    if part == "required":
                        text = "Required input is missing"
                        self.errors[node].append(
                            _problem("required_input_missing", text, name, input_name=name)
                        )
                    continue
                sound = self._input(node, name, expected) and sound
        return sound and not self.errors[node]

    def _input(self, node: str, name: str, link: list[Any]) -> bool:
        value = self._prompt[node]["inputs"][name]
        kind = link[0]
        facts = link[1] if len(link) > 1 and isinstance(link[1], dict) else {}
        if isinstance(value, list):
            return self._link(node, name, str(kind) if not isinstance(kind, list) else "COMBO", value)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return self._primitive(node, name, value, (kind, facts))
        choices = kind if isinstance(kind, list) else facts.get("options")
        if choices is None:
            return self._add(node, _problem("bad_linked_input", "Bad linked input", name, input_name=name))
        if name == "image" and self._prompt[node]["class_type"] in {"LoadImage", "LoadImageMask"}:
            # These classes check their files themselves.
            if self._has_file(str(value)):
                return True
            details = f"{name} - Invalid image file: {value}"
            text = "Custom validation failed for node"
            return self._add(node, _problem("custom_validation_failed", text, details, input_name=name))
        if value in choices:
            return True
        details = f"{name}: {value!r} not in {choices}"
        extra = {"input_name": name, "received_value": value}
        return self._add(node, _problem("value_not_in_list", "Value not in list", details, **extra))

    def _link(self, node: str, name: str, kind: str, value: list[Any]) -> bool:
        if len(value) != 2 or value[0] not in self._prompt:
            return self._add(node, _problem("bad_linked_input", "Bad linked input", name, input_name=name))
        origin, slot = value
        inputs = self._schemas[self._prompt[origin]["class_type"]]["output"]
        if slot >= len(inputs) or (inputs[slot] not in kind.split(",") and kind != "*"):
            text = "Return type mismatch between linked nodes"
            return self._add(node, _problem("return_type_mismatch", text, name, input_name=name))
        return self.holds(origin)

    def _primitive(self, node: str, name: str, value: Any, link: tuple[str, Mapping[str, Any]]) -> bool:
        kind, facts = link
        extra = {"input_name": name, "received_value": value}
        try:
            number = _PRIMITIVES[kind](value)
        except (TypeError, ValueError):
            text = f"Failed to convert an input value to a {kind} value"
            return self._add(node, _problem("invalid_input_type", text, name, **extra))
        if kind not in {"INT", "FLOAT"}:
            return True
        if "min" in facts and number < facts["min"]:
            text = f"Value {value} smaller than min of {facts['min']}"
            return self._add(node, _problem("value_smaller_than_min", text, name, **extra))
        if "max" in facts and number > facts["max"]:
            text = f"Value {value} bigger than max of {facts['max']}"
            return self._add(node, _problem("value_bigger_than_max", text, name, **extra))
        return True

    def _add(self, node: str, problem: Problem) -> bool:
        self.errors[node].append(problem)
        return False
