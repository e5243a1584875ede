"""Documents become text with page numbers, and hostile ones are rejected with one sentence."""

from __future__ import annotations

import asyncio
import io
import json
import zlib
from pathlib import Path

import pypdf
import pypdf.generic
import pytest

from sixfold import errors
from sixfold.core.documents import Document, DocumentLimits, join, page_at
from sixfold.engines.documents import extraction
from sixfold.engines.documents.reader import ProcessReader
from tests import loop_time
from tests.fakes import documents as fakes

HTML = (
    "<html><head><title>The plan &amp; more</title><meta name='author' content='Ann'>"
    "<meta property='article:published_time' content='2024-05-01T10:00:00Z'></head><body>"
    "<nav>Menu</nav><main><h1>Plan</h1><p>A <b>bold</b> word_here.</p><h2>Cost</h2><ul><li>rotor</ul>"
    "<h2>Team</h2><table><tr><th>who</th><th>what</th></tr><tr><td>Ann</td><td>lead</td></tr></table>"
    "<script>alert(1)</script></main></body></html>"
)


def read(tmp_path: Path, name: str, data: bytes, **limits: int) -> Document:
    """Return what the reader extracts from a file."""
    path = tmp_path / "sent"
    path.write_bytes(data)
    return asyncio.run(ProcessReader(DocumentLimits(**limits)).read(path, name, "acct_a"))


def refusal(tmp_path: Path, name: str, data: bytes, **limits: int) -> str:
    """Return the error message for a file."""
    with pytest.raises(errors.BadRequest) as excinfo:
        read(tmp_path, name, data, **limits)
    assert excinfo.value.message.startswith(f"{name}: ")
    return excinfo.value.message.removeprefix(f"{name}: ")


def test_canvas_has_its_texts_by_group_and_its_arrows(tmp_path: Path) -> None:
    nodes = [
        {"id": "g", "type": "group", "label": "Work", "x": 0, "y": 0, "width": 500, "height": 500},
        {
            "id": "a",
            "type": "text",
            "text": "# Plan\nBuy helium",
            "x": 10,
            "y": 200,
            "width": 50,
            "height": 50,
        },
        {"id": "b", "type": "file", "file": "People/Ann.md", "subpath": "#Tasks", "x": 10, "y": 10},
        {"id": "c", "type": "file", "file": "lamp.png", "x": 900, "y": 10, "color": "1"},
        {"id": "d", "type": "link", "url": "https://a.example", "x": -10, "y": 10},
    ]
    edges = [
        {"id": "1", "fromNode": "a", "toNode": "b", "label": "asks", "toEnd": "arrow"},
        {"id": "2", "fromNode": "a", "toNode": "missing"},
    ]
    data = json.dumps({"nodes": nodes, "edges": edges}).encode()
    assert read(tmp_path, "plan.canvas", data).text() == (
        "https://a.example\n\n![[lamp.png]]\n\n"
        "## Work\n\n[[People/Ann#Tasks]]\n\n# Plan\nBuy helium\n\n"
        "## Arrows\n\n- Plan → [[People/Ann#Tasks]] (asks)"
    )
    assert read(tmp_path, "new.canvas", b"").text() == "This canvas is empty."
    assert refusal(tmp_path, "no.canvas", b"[1]").startswith("The file is not a canvas")


def test_links_at_an_arrow_of_a_canvas_are_names(tmp_path: Path) -> None:
    """A word before a link in a list would be the type of a relation."""
    nodes = [
        {"id": "a", "type": "text", "text": "Call [[People/Ann Smith]] today", "y": 1},
        {"id": "b", "type": "text", "text": f"{'x ' * 36}[[A|Anna Bell]]", "y": 2},
    ]
    data = json.dumps({"nodes": nodes, "edges": [{"fromNode": "a", "toNode": "b"}]}).encode()
    (arrow,) = (line for line in read(tmp_path, "a.canvas", data).text().splitlines() if "→" in line)
    assert arrow == f"- Call People/Ann Smith today → {'x ' * 36}Anna Bel"


def test_node_is_in_one_of_several_groups_with_the_same_id(tmp_path: Path) -> None:
    group = {"id": "", "type": "group", "width": 9, "height": 9}
    nodes = [
        {"id": "a", "type": "text", "text": "inside", "x": 1, "y": 1},
        {"id": "b", "type": "text", "text": "outside", "x": 90, "y": 90},
        {**group, "label": "Small"},
        *[{**group, "label": f"Large {index}", "width": 19, "x": 100 * index} for index in range(2)],
    ]
    data = json.dumps({"nodes": nodes}).encode()
    text = "outside\n\n## Small\n\ninside\n\n## Large 0\n\n## Large 1"
    assert read(tmp_path, "a.canvas", data).text() == text


def test_canvas_whose_arrows_repeat_a_long_name_is_refused(tmp_path: Path) -> None:
    """Its text would be many times as long as the file."""
    node = {"id": "a", "type": "file", "file": "x" * 1_000_000, "x": 1, "y": 1}
    data = json.dumps({"nodes": [node], "edges": [{"fromNode": "a", "toNode": "a"}] * 10_000}).encode()
    assert "more than" in refusal(tmp_path, "big.canvas", data, chars=1_000_000)


def test_pdf_has_its_pages_chapters_and_title(tmp_path: Path) -> None:
    pages = ["The rotor turns left.", "# 12 is no heading", "", "The end [p. 9]\n[p. 9]"]
    document = read(tmp_path, "a.pdf", fakes.pdf(pages, title="Rotors", chapters={1: "Start", 4: "End"}))
    assert (document.kind, document.title, document.pages) == ("pdf", "Rotors", 4)
    assert [(block.page, block.chapter) for block in document.blocks] == [
        (1, "Start"),
        (2, ""),
        (3, ""),
        (4, "End"),
    ]
    text = document.text()
    assert "[p. 2]\n\n\\# 12 is no heading" in text
    assert page_at(text, text.index("rotor")) == 1
    # A line of the document that looks like a mark is none.
    assert page_at(text, len(text)) == 4
    assert page_at("no marks", 3) == 0


def test_docx_has_headings_lists_and_tables(tmp_path: Path) -> None:
    data = fakes.word(
        [("Heading 1", "Budget"), ("Normal", "It costs 12."), ("Heading 1", "Team"), ("List Bullet", "Ann")],
        title="The plan",
        rows=2,
    )
    document = read(tmp_path, "plan.docx", data)
    assert (document.title, [block.chapter for block in document.blocks]) == ("The plan", ["Budget", "Team"])
    text = document.text()
    assert "# Budget\n\nIt costs 12." in text
    assert "- Ann" in text
    assert "| row 1 | value 1 |" in text


def test_html_keeps_the_content_of_the_page_only(tmp_path: Path) -> None:
    document = read(tmp_path, "plan.html", HTML.encode())
    assert (document.title, document.author, document.date) == ("The plan & more", "Ann", "2024-05-01")
    assert [block.chapter for block in document.blocks] == ["Plan", "Cost", "Team"]
    text = document.text()
    assert "**bold** word_here" in text
    assert "| Ann | lead |" in text
    assert "Menu" not in text
    assert "alert" not in text


def test_epub_has_its_chapters_in_order(tmp_path: Path) -> None:
    chapters = [
        "<html><body><h1>One</h1><p>It began.</p></body></html>",
        "<html><h1>Two</h1><p>Over.</p></html>",
    ]
    document = read(tmp_path, "b.epub", fakes.epub(chapters))
    assert (document.title, document.author, document.date) == ("A book", "Bo Berg", "2020-01-02")
    assert document.text() == "# One\n\nIt began.\n\n# Two\n\nOver."


def test_text_is_split_at_its_headings(tmp_path: Path) -> None:
    text = "# Title\n\nIntro\n\n```\n# no heading\n```\n\n## One\n\nfirst\n\n## Two\n\nsecond\n"
    document = read(tmp_path, "a.txt", text.encode())
    assert [block.chapter for block in document.blocks] == ["Title", "One", "Two"]
    assert document.title == "Title"


def test_headings_after_the_first_2000_begin_no_chapter(tmp_path: Path) -> None:
    text = "# a\n" * 200_000
    document = read(tmp_path, "a.txt", text.encode())
    assert len(document.blocks) < 2_100
    assert [block.chapter for block in document.blocks[:3]] == ["a", "a", "a"]
    assert sum(block.text.count("# a") for block in document.blocks) == 200_000


@pytest.mark.parametrize("row", ["x" + " " * 60_000 + "x", ("# x" + " #" * 498 + "x\n") * 60])
def test_long_runs_of_spaces_take_linear_time(row: str) -> None:
    def work() -> Document:
        blocks = extraction.chapters(row, len(row))
        return extraction.finish(Document("text", extraction.first_heading(row), blocks=blocks), len(row))

    assert " ".join(block.text for block in work().blocks).split() == row.split()
    assert loop_time.cpu_seconds(work, 0.05) < 0.1


def test_spaces_and_marks_at_the_end_of_lines_are_removed(tmp_path: Path) -> None:
    document = read(tmp_path, "a.txt", b"# A # b ## \t#\n\nfirst \t\n \n\n\n  second  \n## ##\n")
    assert (document.title, document.text()) == ("A # b", "# A # b ## \t#\n\nfirst\n\n  second\n## ##")


def test_long_block_is_split_at_paragraphs(tmp_path: Path) -> None:
    document = read(tmp_path, "a.txt", ("word " * 30 + "\n\n").encode() * 1000)
    assert len(document.blocks) > 2
    assert max(len(block.text) for block in document.blocks) <= 50_000
    assert join(document.blocks).count("word") == 30_000


def pdf_bomb() -> bytes:
    """A PDF whose page content unpacks to 400 MB."""
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(100, 100)
    stream = pypdf.generic.StreamObject()
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"BT (a) Tj ET\n" * 80_000) for _ in range(400)) + packer.flush()
    stream._data = packed
    stream[pypdf.generic.NameObject("/Filter")] = pypdf.generic.NameObject("/FlateDecode")
    page[pypdf.generic.NameObject("/Contents")] = writer._add_object(stream)
    result = io.BytesIO()
    writer.write(result)
    return result.getvalue()


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "'
    + "&a;" * 500
    + '"><!ENTITY c "'
    + "&b;" * 500
    + '">]><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">&c;</w:document>'
)


def entities() -> bytes:
    """A DOCX whose text is an entity that expands to 500 KB and more."""
    return fakes.pack({"[Content_Types].xml": "<Types/>", "word/document.xml": LAUGHS})


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.pdf", b"%PDF-1.7 broken", "damaged"),
        ("a.pdf", b"nothing like it", "damaged"),
        ("a.pdf", fakes.pdf(["x"], password="secret"), "encrypted"),
        ("a.pdf", fakes.pdf(["", ""]), "does not contain text"),
        ("a.docx", b"PK\x03\x04 broken", "damaged"),
        ("a.docx", fakes.pack({"a.txt": "x"}), "not a DOCX"),
        ("a.docx", entities(), "document type definition"),
        ("a.docx", fakes.pack({f"f{n}": "" for n in range(5_001)}), "at most 5,000 parts"),
        ("a.docx", fakes.pack({"word/document.xml": b" " * (65 * 2**20)}), "file is larger than"),
        ("a.docx", fakes.pack({"word/document.xml": b"<a/>" * 2_000_001}), "at most 2,000,000 XML tags"),
        ("a.epub", fakes.pack({"a.txt": "x"}), "damaged"),
        ("a.epub", fakes.epub(["x"], parts={"OEBPS/book.opf": b"<a/>" * 100_001}), "at most 100,000"),
        ("a.epub", fakes.epub(["x"], parts={"OEBPS/book.opf": b'<a a=""' * 50_001}), "at most 100,000"),
        ("a.epub", fakes.epub(["<p>x"], parts={"META-INF/encryption.xml": (
            '<encryption><CipherReference URI="OEBPS/c0.xhtml"/></encryption>'
        )}), "DRM"),
        ("a.html", b"<div>" * 5_000 + b"x", "nested too deeply"),
        ("a.html", b"<p>" * 100_000 + b"x", "nested too deeply"),
        ("a.html", b"<td>x</td>" * 400_000, "at most 400,000 elements"),
        ("a.txt", b"\xff\xfe\x00", "not text"),
        ("a.txt", b"", "does not contain text"),
    ],
)  # fmt: skip
def test_hostile_file_is_refused_in_one_sentence(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    message = refusal(tmp_path, name, data)
    assert reason in message
    assert "\n" not in message


def test_decompression_bomb_ends_with_its_process(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, "a.pdf", pdf_bomb(), seconds=20)) < 100


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"pages": 2}, "at most 2 pages (got 3)"), ({"chars": 50}, "more than 50 characters")],
)
def test_limits_of_the_operator_hold(tmp_path: Path, limits: dict[str, int], reason: str) -> None:
    assert reason in refusal(tmp_path, "a.pdf", fakes.pdf(["word " * 10] * 3), **limits)
    with pytest.raises(errors.TooLarge, match="at most 10 bytes"):
        read(tmp_path, "a.pdf", fakes.pdf(["x"]), file_bytes=10)


def test_other_file_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.BadRequest, match=r"a\.exe is not a document .* \(supported: \.canvas, \.docx"):
        read(tmp_path, "a.exe", b"x")


def test_missing_library_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pypdf" else name)
    with pytest.raises(errors.EngineUnavailable, match=r"pip install 'sixfold\[documents\]'"):
        read(tmp_path, "a.pdf", fakes.pdf(["x"]))
    assert read(tmp_path, "a.html", HTML.encode()).kind == "html"


async def test_account_has_a_limit_on_waiting_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sixfold.engines.documents.reader.MAX_WAITING", 3)
    path = tmp_path / "a"
    path.write_bytes(HTML.encode())
    reader = ProcessReader(DocumentLimits())
    reads = [reader.read(path, "a.html", "acct_a") for _ in range(4)]
    results = await asyncio.gather(*reads, return_exceptions=True)
    assert sum(isinstance(result, errors.TooManyRequests) for result in results) == 1
    assert (await reader.read(path, "a.html", "acct_a")).title == "The plan & more"
