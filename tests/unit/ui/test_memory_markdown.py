"""Markdown of pages: links, images, tables, tasks and escaped text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.memory.mentions import PageMention
from sixfold.ui.memory.formatting import snippet, why
from sixfold.ui.memory.markdown import MAX_CHARS, RenderContext, is_allowed_url, render

HERE = RenderContext(
    "people/ann",
    "Ann",
    {"acme": PageMention("companies/acme", "Acme"), "people/ben": PageMention("people/ben", "Ben")},
)


def to_html(text: str, context: RenderContext = HERE) -> str:
    return render(text, context).html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("[[acme]]", '<a class="wiki" href="/memory/companies/acme">Acme</a>'),
        ("[[acme|the *firm*]]", '<a class="wiki" href="/memory/companies/acme">the *firm*</a>'),
        (
            "[[works_at::acme]]",
            '<span class="kind">works at</span> <a class="wiki" href="/memory/companies/acme">',
        ),
        ("[Ben](ben.md)", '<a href="/memory/people/ben">Ben</a>'),
        ("[[nobody]]", '<a class="missing-page" title="no page yet">nobody</a>'),
        ("[[acme#How it began|it]]", '<a class="wiki" href="/memory/companies/acme#s-how-it-began">it</a>'),
        ("He helps [[acme]]. ^first-note", "Acme</a>.</p>\n"),
        ("- one ^a\n- 2 ^ 3", "<li>one</li>\n<li>2 ^ 3</li>"),
        ("a formula 2^3", "<p>a formula 2^3</p>"),
        ("[[acme#How it began]]", 'href="/memory/companies/acme#s-how-it-began">Acme &gt; How it began</a>'),
        ("[[acme#^block]]", '<a class="wiki" href="/memory/companies/acme">Acme</a>'),
        ("[[#How it began]]\n## How it began", '<a href="#s-how-it-began">How it began</a>'),
        (
            "> [!tip] Do *this*\n> and that",
            '<blockquote class="callout">\n<p><strong>Do <em>this</em></strong>',
        ),
        ("> [!WARNING]-\n> Hot", "<strong>Warning</strong><br />\nHot"),
        ("> [!note]", "<strong>Note</strong></p>"),
        ("> [! no] one", "<blockquote>\n<p>[! no] one"),
        ("`[[acme]]`", "<code>[[acme]]</code>"),
        ("![[photo.png]]", '<span class="attachment" title="Files are not shown here">photo.png</span>'),
        ("- [x] done", '<span class="task" role="img" aria-label="done">☑</span> done'),
        (
            "https://a.example/b_c).",
            '<a href="https://a.example/b_c" rel="noopener noreferrer nofollow ugc">',
        ),
        ("![p](/media/x.png)", '<img src="/media/x.png" alt="p" loading="lazy">'),
        ("1. [ ] *a* b", '<li><span class="task" role="img" aria-label="to do">☐</span> <em>a</em>'),
        ("[x] no list", "<p>[x] no list"),
        ("$x^2$ for $5 and $6", "<msup><mi>x</mi><mn>2</mn></msup></mrow></math> for $5 and $6"),
        ("$$\n\\frac{a}{b}\n$$", "<mfrac>"),
        ("$\\href{javascript:1}{a}$", "a"),
        ("#team/x #1 a#b `#c`", "#team/x #1 a#b <code>#c</code>"),
        ("|a|\n|-:|\n|1|", '<td class="right">1</td>'),
    ],
)
def test_markdown_renders_as_html(text: str, html: str) -> None:
    assert html in to_html(text)


def test_missing_pages_are_linked_to_the_editor() -> None:
    page = to_html("[[a b/c]]", RenderContext("x", may_write=True))
    assert 'href="/memory/~new?slug=a-b%2Fc"' in page


def test_tags_and_tasks_of_an_account_are_controls() -> None:
    page = to_html(
        "[#a #b](https://a.example) #team/x\n\n%%one\ntwo%%\n- [ ] do **it**",
        RenderContext("x", account_id="acct_1", has_tasks=True),
    )
    assert page.count('class="tag"') == 1
    assert '<a class="tag" href="/memory?tag=team%2Fx">#team/x</a>' in page
    # The line is that of the body with the comment.
    assert 'name="task" value="4" role="checkbox" aria-checked="false" aria-label="do it">' in page


def test_url_as_the_text_of_a_link_is_not_linked_again() -> None:
    assert to_html("[https://a.example](https://b.example)").count("<a ") == 1


def test_headings_are_below_the_title_with_unique_anchors() -> None:
    text = render("# Ann\n\n## One\n\n## One\n", HERE)
    assert [tuple(heading) for heading in text.headings] == [(2, "s-one", "One"), (2, "s-one~2", "One")]
    other = render("# Other\n\n## One\n", HERE)
    assert [heading.level for heading in other.headings] == [2, 3]


def test_too_long_text_is_shown_unrendered() -> None:
    for text in ("<b>" + "x" * MAX_CHARS, "[" * 20_000 + "<b>"):
        assert '<pre class="plain"' in to_html(text)
        assert "<b>" not in to_html(text)


@pytest.mark.parametrize(
    "url", ["https://a.example", "mailto:a@b.example", "#s-x", "other", "/media/x.png", "a.md#b"]
)
def test_urls_of_the_web_and_pages_are_allowed(url: str) -> None:
    assert is_allowed_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "/media/%2e%2e/signout",
        "/media/%2E./signout",
        "/media/.%2e/signout",
        "javascript:1",
        "java%0Ascript:1",
        "//a.example",
        "/%5Ca.example",
        "data:text/html,x",
        "/api/ra1",
        "../../api/x",
    ],
)
def test_other_urls_are_not_allowed(url: str) -> None:
    assert not is_allowed_url(url)


PARTS = st.lists(
    st.sampled_from(
        [
            "<script>",
            "[",
            "](",
            "javascript:",
            ")",
            "![",
            "[[",
            "]]",
            "|",
            "`",
            "```\n",
            "\n",
            "# ",
            "<",
            ">",
            '"',
            "'",
            "onerror=",
            "a",
            " ",
            "&lt;",
            "\\",
            "- ",
            "https://a.example/",
            "/media/",
            "*",
            "::",
            "&#60;",
            "- [ ] ",
            "$",
            "$$",
            "#",
            "==",
        ]
    ),
    max_size=40,
)
TAG = re.compile(r"<(/?)([a-z0-9]+)((?:\s[^<>]*)?)>")
ELEMENTS = re.compile(
    r"math|m[a-z]+|mark|p|a|[uo]l|li|h[1-6]|em|strong|s|code|pre|blockquote|[hb]r|img|span|div|table|thead|tbody|t[rhd]"
)
ATTRIBUTES = re.compile(
    r"\s(?:xmlns|display|stretchy|fence|form|separator|lspace|rspace|mathvariant|href|rel|class|title|src|alt|loading|id|role|start|tabindex|aria-label)=\"[^\"<>]*\"|\s/"
)


@given(PARTS)
def test_text_adds_no_unlisted_element_or_attribute(parts: list[str]) -> None:
    page = to_html("".join(parts))
    rest = TAG.sub("", page)
    assert "<" not in rest
    for _, name, inside in TAG.findall(page):
        assert ELEMENTS.fullmatch(name)
        assert not ATTRIBUTES.sub("", inside).strip(), (name, inside)


def test_snippet_marks_matches_without_syntax_and_title() -> None:
    text = snippet("# «Ann» Ann «works» at **[[acme|Acme]]** <b> | Hours | |--:| 4", "Ann")
    assert text == "Ann <mark>works</mark> at Acme &lt;b&gt; · Hours · 4"


def test_reasons_are_listed_largest_first_with_their_share() -> None:
    explain = {"text": 0.2, "relation": 0.8, "recency": 0.0, "words": {"a": 1.0}, "on_disk": True}
    response = why(explain)
    assert response == [("matches the relation", 0.8, 1.0), ("words on the page", 0.2, 0.25)]
    assert why(None) == []


NOTE = '<sup><a id="note-ref-{own}" href="#note-{number}" aria-label="Note {number}">{number}</a></sup>'


def test_footnotes_are_linked_with_their_references() -> None:
    text = "One[^b], two^[an *aside*], one[^b].\n\n[^b]: At [[acme]].\n\n    - a list\n\nMore."
    one, two, again = (
        NOTE.format(own=own, number=number) for own, number in (("1", 1), ("2", 2), ("1-2", 1))
    )
    back = ' <a href="#note-ref-{0}" aria-label="Back to the reference of note {0}">↩\ufe0e</a>'
    assert to_html(text) == (
        f"<p>One{one}, two{two}, one{again}.</p>\n<p>More.</p>\n"
        '<section class="notes" aria-label="Footnotes"><ol>\n'
        '<li id="note-1"><p>At <a class="wiki" href="/memory/companies/acme">Acme</a>.</p>\n'
        f"<ul>\n<li>a list</li>\n</ul>\n{back.format(1)}</li>\n"
        f'<li id="note-2"><p>an <em>aside</em>{back.format(2)}</p>\n</li>\n</ol></section>\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "[^unused]: secret",
        "a[^1]\n\n[^1]: first\n\n[^1]: secret",
        "a[^1]\n\n[^1]: [^2]: secret\n\n    secret",
    ],
)
def test_no_text_of_a_footnote_is_hidden(text: str) -> None:
    assert to_html(text).count("secret") == text.count("secret")


def test_footnote_has_no_link_to_a_reference_that_is_not_shown() -> None:
    html = to_html("![a [^1]](b.png)\n\n[^1]: note")
    assert '<li id="note-1"><p>note</p>' in html


def test_reference_without_a_footnote_is_text() -> None:
    assert to_html("a[^1] [^ 2]") == "<p>a[^1] [^ 2]</p>\n"
