"""Limits for the files of other applications: memory, and the number of YAML values with aliases."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator
from typing import Any, cast

import yaml

from sixfold.cli.terminal import CommandError

# An import of 512 MiB of chats takes up to 3 GiB of memory; small values take up to 40 times their size.
MAX_BYTES = 4 * 2**30
# LiteLLM's largest example has 3,000 values.
MAX_VALUES = 200_000
# 1 MiB of a usual file takes a few seconds; nested brackets take longer.
MAX_SECONDS = 60
# The time to convert a number in base 60 grows with the square of its length, and Python limits others.
MAX_NUMBER_CHARS = 100
_NUMBERS = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))


@contextlib.contextmanager
def limited_memory(file: str) -> Generator[None]:
    """Limit the memory of this process while a file is read; raises `CommandError` if it is exceeded.

    The limit is only available on Linux.
    """
    if sys.platform != "linux":
        yield
        return
    # The modules are not available on all systems.
    import resource

    from sixfold import process_resources

    limits = resource.getrlimit(resource.RLIMIT_DATA)
    # The limit counts what the process had before it read the file, too.
    process_resources.limit_data(MAX_BYTES)
    try:
        yield
    except MemoryError:
        # Within the limit, there may be no memory for the error itself.
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        raise CommandError(
            f"{file} takes more than {MAX_BYTES // 2**20:,} MiB of memory to read: it is damaged, or "
            "designed to exhaust the memory; nothing was changed"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


class _LimitedLoader(yaml.SafeLoader):
    """A safe loader that limits its time, and the fields which merge keys add to a mapping."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._deadline = time.process_time() + MAX_SECONDS

    def fetch_more_tokens(self) -> None:
        if time.process_time() > self._deadline:
            raise yaml.YAMLError(f"reading it takes more than {MAX_SECONDS} s of processor time")
        super().fetch_more_tokens()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MAX_VALUES // 10:
            raise yaml.constructor.ConstructorError(
                None, None, "merge keys add too many fields", node.start_mark
            )

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """Return a number or a date, which has a bounded number of characters."""
        if len(node.value) > MAX_NUMBER_CHARS:
            raise yaml.constructor.ConstructorError(
                None, None, f"a number has more than {MAX_NUMBER_CHARS} characters", node.start_mark
            )
        return yaml.SafeLoader.yaml_constructors[node.tag](self, node)


for _tag in _NUMBERS:
    _LimitedLoader.add_constructor(_tag, _LimitedLoader.construct_number)


def parse_yaml(text: str) -> Any:
    """Return the value of a document; raises `YAMLError` if it is invalid or contains too many values.

    A value is counted again for each of its aliases.
    """
    document = yaml.load(text, _LimitedLoader)  # noqa: S506 - a safe loader
    remaining, stack = MAX_VALUES, [document]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            children = list(cast("dict[Any, Any]", value).values())
        else:
            children = cast("list[Any]", value) if isinstance(value, list) else []
        remaining -= 1 + len(children)
        if remaining < 0:
            raise yaml.YAMLError(f"with its aliases, it has more than {MAX_VALUES:,} values")
        stack += children
    return document
