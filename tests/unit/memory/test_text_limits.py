"""Texts with long runs of combining characters, and edits that enlarge a page, are rejected early or fast."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.memory import limits, markdown, page_edits, slugs
from sixfold.core.memory.import_export import archives, attachments, paths
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archives import ImportReport
from sixfold.core.memory.indexing import chunks, tokens
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.page_edits import PageEdit
from sixfold.core.memory.relation_extraction import entities
from sixfold.core.workflows import documents
from sixfold.engines.speech import sentences
from sixfold.engines.text import hashed
from tests.loop_time import cpu_seconds

# Normalization in quadratic time takes from 5 seconds to minutes for these texts.
MAX_SECONDS = 2.0


def with_combining_marks(chars: int) -> str:
    """Return a letter with about `count` combining characters, none in canonical order."""
    return "a" + "\u0316\u0301" * (chars // 2)


TEXT = with_combining_marks(400_000)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: limits.line("title", TEXT, limits.TITLE_CHARS),
        lambda: limits.names("tags", [TEXT]),
        lambda: limits.names("tags", [with_combining_marks(390) + str(number) for number in range(50_000)]),
        lambda: limits.link_type(TEXT),
        lambda: slugs.normalize(TEXT),
        lambda: page_edits.texts("tags", [TEXT]),
        lambda: page_edits.texts("collections", TEXT),
    ],
)
def test_names_are_counted_before_they_are_normalized(refused: Callable[[], object]) -> None:
    def work() -> None:
        with pytest.raises(errors.BadRequest, match=r"at most \d+ (characters|entries) \(got"):
            refused()

    assert cpu_seconds(work, MAX_SECONDS) < MAX_SECONDS


@pytest.mark.parametrize(
    "read",
    [
        lambda: limits.loose_line(TEXT, limits.TITLE_CHARS),
        lambda: limits.loose_names([TEXT]),
        lambda: slugs.loosely(TEXT),
        lambda: slugs.loosely(TEXT[1:]),
        lambda: slugs.beginning(TEXT),
        lambda: paths.slug(TEXT + ".md"),
        lambda: import_export_files.origin(TEXT + ".md", "x"),
        lambda: tokens.terms(TEXT),
        lambda: tokens.fold(TEXT),
        lambda: [tokens.terms(TEXT[start:end]) for start, end in chunks.split(TEXT)],
        lambda: entities.key(TEXT),
        lambda: documents.plain_name(TEXT, "-"),
        lambda: sentences.split(TEXT[:100_000]),
        lambda: hashed.vector(TEXT),
    ],
)
def test_other_texts_are_parsed_in_linear_time(read: Callable[[], object]) -> None:
    assert cpu_seconds(read, MAX_SECONDS) < MAX_SECONDS


def test_decomposed_names_of_full_length_are_accepted() -> None:
    letter, composed = "ᾂ", "α\u0313\u0300\u0345"
    assert limits.line("tags", composed * limits.TAG_CHARS, limits.TAG_CHARS) == letter * limits.TAG_CHARS
    assert slugs.normalize(composed * slugs.MAX_CHARS) == letter * slugs.MAX_CHARS
    assert limits.names("tags", [*["work", "#work", " work "] * 100]) == ("work",)


def test_dashes_and_marks_before_a_slug_are_removed() -> None:
    assert slugs.loosely("?\u0301?b\u0301") == "b\u0301"
    assert slugs.loosely("\u0301\u0316") is None


def tar_of(path: Path, name: str) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())


def zip_of(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr(name, "")


@pytest.mark.parametrize(("pack", "chars"), [(tar_of, 80_000), (zip_of, 30_000)])
def test_long_archive_paths_are_refused_before_normalization(
    pack: Callable[[Path, str], None], chars: int, tmp_path: Path
) -> None:
    pack(tmp_path / "archive", with_combining_marks(chars) + ".md")

    def work() -> None:
        naming = import_export_files.FileNaming(archives.outliner(tmp_path / "archive", MemoryLimits()))
        for file in archives.files(tmp_path / "archive", MemoryLimits(), ImportReport()):
            assert file.error == "has a path that is too long, or that leads out of the archive"
            assert naming.slug(file.path) is None

    assert cpu_seconds(work, 0.5) < 0.5


def page(body: str) -> MemoryPage:
    return MemoryPage("id", "ann", "log", "Log", body, "note", (), (), 1, 0, 0, "ann")


def test_a_replacement_is_counted_before_it_is_built() -> None:
    edit = PageEdit("replace_text", "é" * 1_000, find="ä", every=True)
    tracemalloc.start()
    try:
        with pytest.raises(errors.TooLarge, match=r"at most 1,048,576 bytes \(got 100,000,000\)"):
            page_edits.apply(page("ä" * 50_000), edit, MemoryLimits())
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_replacement_can_fill_a_page_to_its_limit() -> None:
    edit = PageEdit("replace_text", "日本", find="ä", every=True)
    allowed = MemoryLimits(page_bytes=6 * 1_000)
    assert page_edits.apply(page("ä" * 1_000), edit, allowed).body == "日本" * 1_000
    with pytest.raises(errors.TooLarge, match=r"at most 6,000 bytes \(got 6,006\)"):
        page_edits.apply(page("ä" * 1_001), edit, allowed)


def test_caches_store_no_long_words() -> None:
    tracemalloc.start()
    try:
        for number in range(20):
            long = f"{number}" + "b" * 500_000
            assert tokens.words(f"{long} é") == [long[:48], "e"]
            assert tokens.word(long) == long[:48]
        assert tracemalloc.get_traced_memory()[0] < 2 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "unit", ["![[" + "a!/" * 120 + "]]\n", "![[\u00e9!]]", "![](a.png)", "![](../\u00e9.p) "]
)
def test_embedded_files_are_read_from_a_part_of_the_text(unit: str) -> None:
    body = unit * (2**20 // len(unit))

    def work() -> None:
        assert len(attachments.embedded_slugs(body, "notes/day")) == 1

    assert cpu_seconds(work, 0.1) < 0.1


def test_unfinished_image_with_many_spaces_takes_little_time() -> None:
    body = "![](" + " " * 2**20
    assert cpu_seconds(lambda: attachments.embedded_slugs(body, "notes/day"), 0.05) < 0.1


def test_code_is_searched_in_pieces_of_whole_lines() -> None:
    text = "a `b` ``c`d`` `e\n`\n"
    body, long_line = text * 10_000, "`f` " * 30_000
    assert markdown.without_code(body) == "a             `e\n`\n" * 10_000
    assert markdown.without_code(long_line).strip(" `f") == ""


def test_embedded_files_are_found_behind_many_links() -> None:
    body = "![](https://example.com/a.png) " * 500 + "![[lamp.png]] ![](lens.png)"
    assert attachments.embedded_slugs(body, "notes/day") == {"lamp.png", "notes/lens.png"}
