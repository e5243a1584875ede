"""Edits of pages whose texts note-taking programs wrote: Windows line ends, and footnotes at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, ticking

pytestmark = pytest.mark.parametrize("backend", databases.BACKENDS, scope="function")


@pytest.fixture
async def memory(backend: str) -> AsyncIterator[MemoryFixture]:
    async with ticking(backend) as result:
        yield result


async def edited(memory: MemoryFixture, text: str, edit: PageEdit) -> str:
    """Return a page with this text after an edit."""
    await memory.service.write(memory.ann, PageWrite("a", text), FREELY)
    await memory.service.edit(memory.ann, "a", edit, WriteTerms())
    return (await memory.service.read(memory.ann, "a")).page.body


async def test_replaced_section_keeps_footnotes_of_other_sections(memory: MemoryFixture) -> None:
    notes = "[^a]: For A,\n    in two lines.\n[^b]: For B.\n"
    text = f"# A\n\nfirst[^a]\n\n## B\n\nsecond[^b]\n\n{notes}"
    after = "# A\n\nfirst[^a]\n\n## B\n\nnew\n\n[^a]: For A,\n    in two lines.\n"
    assert await edited(memory, text, PageEdit("replace_section", "new", section="B")) == after


async def test_footnotes_of_a_replaced_section_occur_once(memory: MemoryFixture) -> None:
    text = "# A\n\none[^a]\n\n[^c]: Above.\n\n## B\n\ntwo[^b]\n\n[^a]: Old.\n[^b]: Also.\n[^c]: Below.\n"
    new = "new[^b]\n\n[^a]: New.\n[^b]: Other."
    after = f"# A\n\none[^a]\n\n[^c]: Above.\n\n## B\n\n{new}\n"
    assert await edited(memory, text, PageEdit("replace_section", new, section="B")) == after


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (PageEdit("append", "end"), "# A\r\n\r\none\r\ntwo\r\nend"),
        (PageEdit("replace_text", "1\r\n2", "one\ntwo"), "# A\r\n\r\n1\r\n2\r\n"),
        (PageEdit("replace_section", "new", section="A"), "# A\r\n\r\nnew\r\n"),
    ],
)
async def test_edit_keeps_windows_line_ends(memory: MemoryFixture, edit: PageEdit, after: str) -> None:
    assert await edited(memory, "# A\r\n\r\none\r\ntwo\r\n", edit) == after
