"""The guardrail of a key, an account or the server: kinds of data to mask, and a hook for calls."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from sixfold import errors

# Kinds of data that can be masked.
KINDS = ("secrets", "emails", "cards")
Stage = Literal["request", "response"]
_MAX_URL = 2000
_TIMEOUTS = (0.1, 30.0)


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An HTTP endpoint that allows, changes or blocks calls.

    `on_failure` determines whether a call is blocked or allowed if the endpoint does not respond.
    """

    url: str
    stages: tuple[Stage, ...] = ("request",)
    timeout_seconds: float = 5.0
    on_failure: Literal["block", "allow"] = "block"


class Guardrail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kinds of data masked in requests and, if `mask_responses` is set, in responses, and the hook."""

    mask: tuple[Literal["secrets", "emails", "cards"], ...] = ()
    mask_responses: bool = False
    hook: HookSettings | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the guardrail has no effect."""
        return not self.mask and self.hook is None

    def hook_of(self, stage: Stage) -> HookSettings | None:
        """Return the hook if it checks this stage, otherwise None."""
        return self.hook if self.hook is not None and stage in self.hook.stages else None

    def document(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)


def parse(fields: Mapping[str, Any]) -> Guardrail:
    """Parse the fields of a guardrail; raises `InvalidInput`."""
    try:
        guardrail = msgspec.convert(fields, Guardrail)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`") or "guardrail"
        raise errors.InvalidInput.of(
            name,
            f"{name} is not valid: {reason[:1].lower()}{reason[1:]}; mask is a list of "
            f"{', '.join(KINDS)}, and hook has url, stages, timeout_seconds and on_failure",
        ) from error
    hook = guardrail.hook
    if guardrail.mask_responses and not guardrail.mask:
        raise errors.InvalidInput.of("mask_responses", "mask_responses requires mask: list the kinds to mask")
    if hook is not None:
        _check(hook)
    return msgspec.structs.replace(guardrail, mask=tuple(dict.fromkeys(guardrail.mask)))


def _check(hook: HookSettings) -> None:
    if not hook.url.startswith(("https://", "http://")) or len(hook.url) > _MAX_URL:
        raise errors.InvalidInput.of(
            "hook", f"hook.url must be an http or https URL of at most {_MAX_URL} characters"
        )
    if not hook.stages:
        raise errors.InvalidInput.of("hook", "hook.stages must contain request, response or both")
    lowest, highest = _TIMEOUTS
    if not lowest <= hook.timeout_seconds <= highest:
        raise errors.InvalidInput.of("hook", f"hook.timeout_seconds must be from {lowest:g} to {highest:g}")


@functools.lru_cache(maxsize=1024)
def decode(text: str) -> Guardrail:
    return msgspec.json.decode(text, type=Guardrail)
