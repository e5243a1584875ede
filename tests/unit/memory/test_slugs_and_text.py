"""Slugs and Markdown: round trips of any text, in bounded time."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold import errors
from sixfold.core.memory import frontmatter, limits, markdown, slugs
from sixfold.core.memory.import_export import archives
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archives import ArchiveMember
from sixfold.core.memory.limits import MemoryLimits

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NAMES = st.text(st.sampled_from("abÄß日ि́İ-_./ '?#"), max_size=30)
VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).map(str.strip)


@given(ANY | NAMES)
def test_normalized_slug_is_stable_and_errors_name_the_slug(text: str) -> None:
    try:
        slug = slugs.normalize(text)
    except errors.BadRequest:
        with pytest.raises(errors.BadRequest, match=r"^slug "):
            slugs.normalize(text)
        return
    assert slugs.normalize(slug) == slug == unicodedata.normalize("NFC", slug)
    assert 1 <= len(slug) <= slugs.MAX_CHARS
    assert all(part.strip(".") for part in slug.split("/"))
    assert slugs.loosely(slug) == slug


@given(ANY | NAMES)
def test_link_resolves_to_the_page_of_the_named_file(text: str) -> None:
    result = slugs.loosely(text)
    if result is not None:
        assert slugs.normalize(result) == slugs.loosely(result) == result
        assert import_export_files.FileNaming().slug(f"{text.strip()}.md") == result


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Projects/Big Plan", "projects/big-plan"),
        ("ÄRGER/Ⅷ", "ärger/ⅷ"),
        ("हिन्दी/नोट", "हिन्दी/नोट"),
        ("עִבְרִית", "עִבְרִית"),
        ("日本\u3000語", "日本-語"),
        ("v1.2_final-x", "v1.2_final-x"),
    ],
)
def test_letters_and_digits_of_any_script_make_slugs(text: str, slug: str) -> None:
    assert slugs.normalize(text) == unicodedata.normalize("NFC", slug)


@pytest.mark.parametrize(
    ("text", "named"),
    [("a?b", "'?' (U+003F QUESTION MARK)"), ("a\tb", "U+0009"), ("a\u202eb", "U+202E"), ("🙂", "U+1F642")],
)
def test_a_refusal_names_the_character(text: str, named: str) -> None:
    with pytest.raises(errors.BadRequest) as excinfo:
        slugs.normalize(text)
    assert named in excinfo.value.message


@pytest.mark.parametrize("text", ["", " ", "\u3000 ", "\n"])
def test_blank_text_is_not_a_slug(text: str) -> None:
    with pytest.raises(errors.BadRequest, match="slug must not be empty"):
        slugs.normalize(text)


@given(
    st.lists(
        st.sampled_from(
            ["---\n", "---\r\n", "a: b\n", "tags: [x, y]\n", "- z\n", "\ufeff", "x", "\n", "...\n"]
        )
    )
)
def test_splitting_a_text_loses_no_byte(parts: list[str]) -> None:
    text = "".join(parts)
    split = markdown.split(text)
    assert split.head + split.body == text


@given(
    VALUES,
    st.lists(VALUES, max_size=4),
    st.sampled_from(["", "---\na: 1 # kept\ntags:\n  - old\nz: [q]\n---\n"]),
)
def test_front_matter_edit_is_stored_and_keeps_the_rest(title: str, tags: list[str], head: str) -> None:
    names = limits.loose_names(tags)
    title = limits.loose_line(title, 500)
    result = frontmatter.update(head, {"title": title, "tags": names, "links": [{"to": title or "x"}]})
    read = frontmatter.read(result)
    assert read is not None
    assert (read.title or "", read.tags or ()) == (title, names)
    assert read.links == ({"to": title or "x"},)
    if head:
        assert "a: 1 # kept\n" in result
        assert "z: [q]\n" in result
        assert "old" not in result or any("old" in name for name in names) or "old" in title


@given(ANY, st.integers(1, 400))
def test_any_text_is_parsed_in_bounded_time(piece: str, times: int) -> None:
    text = (piece or "x") * times
    assert markdown.split(text).body is not None
    for link in markdown.links(text, "a/b"):
        assert slugs.normalize(link.target) == link.target
        assert len(link.context) <= markdown.MAX_CONTEXT
    assert all(entry.summary for entry in markdown.timeline(text))
    assert "\n" not in markdown.first_heading(text)


@pytest.mark.parametrize(
    "text",
    [
        "`" * 300_000,
        "".join("`" * n + "x" for n in range(700)),
        "[" * 300_000,
        "[a](" * 100_000,
        "[[" * 150_000,
        "# " + " " * 500_000 + "#",
        "- **2026** " + " —" * 200_000,
        ("- " + "x" * 60 + " ") * 8_000 + "[[a]]",
        "---\n" + "a" * 60_000 + " " * 4_000 + "\n---\n",
        "---\n" + "[" * 300 + "]" * 300 + "\n---\n",
        "```\n" * 100_000,
        "~~~\n```\n" * 50_000,
        "    ~~~x\n" * 50_000,
        "x\n--\n" * 100_000,
        "# " + "*a **b `" * 100_000,
    ],
)
def test_adversarial_texts_are_parsed_like_others(text: str) -> None:
    split = markdown.split(text)
    assert split.head + split.body == text
    assert len(markdown.links(split.body)) <= markdown.MAX_LINKS
    assert len(markdown.timeline(split.body)) <= markdown.MAX_LINKS
    assert len(markdown.first_heading(split.body)) <= 500


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("owner:: [[people/ann]], [[people/ben]]", {("owner", "people/ann"), ("owner", "people/ben")}),
        ("- Reviewed-By:: [[ann]]\n  depends_on:: [[b]]", {("reviewed-by", "ann"), ("depends_on", "b")}),
        ("tags:: [[a]], b\nalias:: [[c]]", {("links_to", "a"), ("links_to", "c")}),
        ("see owner:: [[a]]\nowner: [[b]]\nowner:: of [[c]]", {("links_to", slug) for slug in "abc"}),
        ("\\[[a]] \\\\[[b]]", {("links_to", "b")}),
        ("| [[Ann Smith\\|Ann]] | ![[lamp.png\\|50]] ![[Plan.canvas]] |", {("links_to", "ann-smith")}),
        ('---\nowner: "[[ann|A]]"\ntags: ["[[x]]"]\n---\n[[y]]',
         {("owner", "ann"), ("links_to", "x"), ("links_to", "y")}),
        ('---\nPeople:\n  - "[[ann]]"\n  - "[[uses::b]]"\n# [[c]]\n---\n',
         {("people", "ann"), ("uses", "b")}),
        ("[[Nov 20th, 2026]] [[journals/May 1st, 2026]] [[March 3rd, 1999]]",
         {("links_to", "2026-11-20"), ("links_to", "journals/2026-05-01"), ("links_to", "1999-03-03")}),
    ],
)  # fmt: skip
def test_links_in_the_notations_of_note_editors_are_parsed(text: str, links: set[tuple[str, str]]) -> None:
    split = markdown.split(text)
    assert {(link.type, link.target) for link in markdown.links(split.body, "", split.head)} == links


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("\ufeff# Saved by Notepad\n", "Saved by Notepad"),
        ("Underlined\n==========\n# Later", "Underlined"),
        ("Underlined\r\n---\r\n", "Underlined"),
        ("one\ntwo\n---\n# After a rule", "After a rule"),
        ("- item\n---\n1. item\n---\n# After two", "After two"),
        ("# `sixfold serve` and **`__init__`**", "sixfold serve and __init__"),
        ("# *Ann* on [the **board**](board.md) of [[acme|Acme]]", "Ann on the board of Acme"),
        ("# 2 * 3 * 4 in snake_case_words", "2 * 3 * 4 in snake_case_words"),
        ("# Learning C#", "Learning C#"),
        ("# #\n## Second ##", "Second"),
        ("```sh``` is a shell\n# Title", "Title"),
        ("- run\n    ```\n# a comment\n    ```\n# Title", "Title"),
    ],
)
def test_title_is_the_rendered_first_heading(text: str, title: str) -> None:
    assert markdown.first_heading(text) == title


@pytest.mark.parametrize(
    "text",
    [
        "```\n[[in]]\n```\n[[out]]",
        "- do\n    ```sh\n    if [[ in ]]; then\n    ```\n[[out]]",
        "- ```\n  [[in]]\n  ```\n[[out]]",
        "> ~~~\n> [[in]]\n> ~~~\n[[out]]",
        "````\n```\n[[in]]\n```\n````\n[[out]]",
        "  ```\n~~~\n[[in]]\n  ```\n[[out]]",
        "```js``` is a language, [[out]]",
        "    ``` begun in a list\n\n```\n[[in]]\n```\n[[out]]",
        "[[out]]\n```\n[[in]]",
    ],
)
def test_links_in_code_are_ignored(text: str) -> None:
    assert [link.target for link in markdown.links(text)] == ["out"]


def test_an_entry_of_a_timeline_has_a_date_of_the_calendar() -> None:
    lines = ("2026-02-28", "2026-02-30", "2026-13", "0000", "2026")
    body = "\n".join(f"- **{date}** so it was" for date in lines)
    assert [entry.date for entry in markdown.timeline(body)] == ["2026-02-28", "2026"]


def test_null_in_front_matter_is_ignored() -> None:
    text = markdown.split('---\ntitle: null\ntype: ~\ntags: [null, "null", a]\n---\n').fields
    assert (text.title, text.type, text.tags) == (None, None, ("null", "a"))


@pytest.mark.parametrize("value", ["[a, b]", "a, b", '"#a #b"', '"#a, #b"', "\n- a\n- b"])
def test_tags_in_the_notations_of_note_editors_are_parsed(value: str) -> None:
    assert markdown.split(f"---\ntags: {value}\n---\n").fields.tags == ("a", "b")


@given(st.binary(max_size=50), NAMES)
def test_any_file_is_a_page_or_has_an_error(data: bytes, name: str) -> None:
    result = archives.file(f"{name}.md", data, MemoryLimits())
    assert isinstance(result, ArchiveMember)
    assert bool(result.error) or "\0" not in result.text


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("2026", True), ("2026-11", True), ("2026-11-20", True), ("2026-11-20T21:04:05Z", True),
        ("2026-11-20t21:04:05.5+02:00", True), ("2026-02-30", False), ("2026-13", False), ("", False),
        ("20261120", False), ("soon", False), ("2026-11-20T25:00:00Z", False), ("٢٠٢٦", False),
    ],
)  # fmt: skip
def test_a_date_is_one_of_the_calendar(value: str, good: bool) -> None:
    if good:
        assert limits.date(value) == value
    else:
        with pytest.raises(errors.BadRequest):
            limits.date(value)
