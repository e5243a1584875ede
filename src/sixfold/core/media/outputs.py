"""The output of a run: files and data."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

import msgspec

from sixfold import errors
from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.input_limits import json_decoding, json_encoding
from sixfold.core.media.ports import OutputFile, StagedFile

OUTPUT_NAME: Final = "output"
MAX_RUN_BYTES: Final = 16 * 2**30
_RETRY_SECONDS = 0.5
# The size of a number in JSON, for an estimate.
_VALUE_BYTES = 16


def check_sizes(staged: Sequence[StagedFile]) -> None:
    """Raise `OSError` if the files of a run are too large; a sparse file can have terabytes.

    They would be read completely for their hashes, which takes seconds for each gigabyte.
    """
    size = sum(file.path.lstat().st_size for file in staged if file.stored is None)
    if size > MAX_RUN_BYTES:
        message = f"the files of a run must have at most {MAX_RUN_BYTES:,} bytes together (got {size:,})"
        raise OSError(errno.EFBIG, message)


class Output(msgspec.Struct, frozen=True):
    """The output of a prediction: files and data of the first output, and the other, named outputs.

    `info` of a file that belongs to another output contains its name. `others` contains the other outputs by
    name, or null for files. `data` is not used for this, because an engine may copy it from an untrusted
    service. `words` are the words of the prompt that the engine understood and ignored.
    """

    files: tuple[OutputFile, ...] = ()
    data: dict[str, Any] = {}
    others: dict[str, Any] = {}
    words: PromptWords = NO_WORDS

    @property
    def is_large(self) -> bool:
        """Whether it takes more than a few milliseconds to encode or decode the data."""
        size, pending = 0, [*self.data.values(), *self.others.values()]
        while pending and size <= LOOP_BYTES:
            value = pending.pop()
            if isinstance(value, str | bytes):
                size += len(value)
            elif isinstance(value, list | tuple | dict):
                items = cast("list[Any] | dict[str, Any]", value)
                size += _VALUE_BYTES * len(items)
                if size <= LOOP_BYTES:
                    pending += items.values() if isinstance(items, dict) else items
        return size > LOOP_BYTES

    def encode(self) -> str:
        """Return the output as JSON."""
        if not self.is_large:
            return msgspec.json.encode(self).decode()
        raw = {"data": msgspec.Raw(json_encoding.encode(self.data))}
        raw["others"] = msgspec.Raw(json_encoding.encode(self.others))
        return msgspec.json.encode(msgspec.structs.replace(self, **raw)).decode()

    @property
    def first(self) -> Output:
        """The first output, or the only one."""
        if not self.others:
            return self
        return Output(tuple(file for file in self.files if OUTPUT_NAME not in file.info), self.data)

    @property
    def named(self) -> dict[str, Any]:
        """The outputs after the first by name: a list of files, or a value."""
        files: dict[str, list[OutputFile]] = {
            name: [] for name, value in self.others.items() if value is None
        }
        for file in self.files:
            name = file.info.get(OUTPUT_NAME)
            if isinstance(name, str) and name in files:
                files[name].append(file)
        return self.others | {name: outputs for name, outputs in files.items() if outputs}


decode_output = msgspec.json.Decoder(Output, float_hook=json_decoding.number).decode


class PutBlob(Protocol):
    """Store a blob whose key and content are known."""

    async def __call__(self, *, content_type: str) -> object: ...


async def store(put: PutBlob, content_type: str, seconds: float) -> None:
    """Store a file of a finished run; try again for `seconds` while the store cannot be reached."""
    end = time.monotonic() + seconds
    while True:
        try:
            await put(content_type=content_type)
        except errors.StoreUnreachable:
            if time.monotonic() >= end:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
