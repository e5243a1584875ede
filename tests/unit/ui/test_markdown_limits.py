"""The work and the output of Markdown rendering are bounded for every construct."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sixfold.ui.memory import formatting, reading, render_limits
from sixfold.ui.memory.markdown import MAX_CHARS, RenderContext, render
from tests import loop_time

HERE = RenderContext("notes/page", "Page")
PLAIN = '<pre class="plain"'


def repeat(text: str, chars: int = MAX_CHARS) -> str:
    """Return the text, repeated to this number of characters."""
    return (text * (chars // len(text) + 1))[:chars]


def wide_table(chars: int, columns: int = 250) -> str:
    """Return tables of many columns whose rows have one cell each."""
    table = "|" + "a|" * columns + "\n|" + "-|" * columns + "\n" + "a\n" * columns + "\n"
    return repeat(table, chars)


HALF = MAX_CHARS // 2
CONSTRUCTS = {
    "links": repeat("[a](/docs) "),
    "unclosed_links": repeat("[a](b "),
    "link_titles": repeat('[a](b "'),
    "reference_links": "[a]: /docs/" + "x" * 1_900 + "\n\n" + repeat("[a] ", 30_000),
    "long_definition": "[a]: /docs/" + "x" * HALF + "\n\n" + repeat("[a] ", 30_000),
    "long_title": "[a]: /docs '" + "&" * HALF + "'\n\n" + repeat("[a] ", 30_000),
    "definitions": "".join(f"[{number}]: /docs\n" for number in range(7_000)),
    "unclosed_definitions": repeat("[a\n", 30_000),
    "images": repeat("![a](/media/x.png) "),
    "unclosed_images": repeat("![", 20_000),
    "embedded_image": "[a]: data:image/png;base64," + "A" * HALF + "\n\n" + repeat("![a] ", HALF),
    "emphasis": repeat("a**b_c*"),
    "unclosed_emphasis": repeat("*a_ "),
    "lists": repeat("- a\n"),
    "nested_lists": repeat("- "),
    "quotes": repeat("> a\n\n"),
    "nested_quotes": repeat(">" * 100 + "a\n"),
    "tables": repeat("|a|\n|-|\n"),
    "wide_tables": wide_table(MAX_CHARS),
    "footnotes": repeat("[^1]", 30_000) + "\n\n[^1]: a",
    "footnote_definitions": "".join(f"[^{number}]: a\n" for number in range(7_000)),
    "unclosed_footnotes": repeat("^[^", 9_000),
    "nested_footnotes": repeat("[^1]: ", 30_000) + "a",
    "callouts": repeat("> [!tip] a\n\n"),
    "callout_lines": "> [!tip]\n" + repeat("> a\n"),
    "fences": repeat("```\na\n```\n"),
    "unclosed_fences": repeat("```\n\n~~~~\n"),
    "backticks": " ".join("`" * count for count in range(1, 440)),
    "entities": repeat("&amp;"),
    "ampersands": repeat('&"'),
    "autolinks": repeat("<https://a.example> "),
    "addresses": repeat("https://a.b "),
    "wiki_links": repeat("[[a]] "),
    "unclosed_wiki_links": repeat("[[a", 15_000),
    "headings": repeat("# a\n"),
    "lines": repeat("a\n"),
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_worst_text_of_each_construct_renders_within_limits(name: str) -> None:
    text = CONSTRUCTS[name][:MAX_CHARS]
    aim = 4 * render_limits.CPU_SECONDS
    pages: list[str] = []
    assert loop_time.cpu_seconds(lambda: pages.append(render(text, HERE).html), aim) < aim
    assert len(pages[-1]) <= render_limits.HTML_CHARS + render_limits.HTML_PER_CHAR * len(text)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("reference_links", "its HTML would be more than 16 times as long as its text"),
        ("embedded_image", "its HTML would be more than 16 times as long as its text"),
        ("long_definition", "it defines a link of more than 2000 characters"),
        ("long_title", "it defines a link of more than 2000 characters"),
        ("wide_tables", "it has too many list items, table cells or other blocks for its length"),
        ("unclosed_images", "it has more than 10000 opening brackets"),
    ],
)
def test_text_over_a_limit_is_plain_with_the_reason(name: str, reason: str) -> None:
    text = "<b>\n\n" + CONSTRUCTS[name][: MAX_CHARS - 5] + "[" * (name == "unclosed_images") * 1_000
    page = render(text, HERE).html
    assert PLAIN in page
    assert reason in page
    assert "&lt;b&gt;" in page


def test_text_above_the_time_limit_is_shown_as_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_limits, "CPU_SECONDS", 0.0)
    page = render("*a* and [b](/docs)", HERE).html
    assert PLAIN in page
    assert "takes more than 0 s of processor time" in page


def test_short_wide_table_is_rendered_fast() -> None:
    text = wide_table(1_000, 120)
    assert loop_time.cpu_seconds(lambda: render(text, HERE), 0.1) < 0.1
    assert PLAIN in render(text, HERE).html


@pytest.mark.parametrize(
    "text",
    [
        "[a]: data:image/png;base64," + "A" * 20_000 + "\n\n![a] and ![a]",
        "[a]: https://a.example/" + "x" * 1_900 + "\n\n" + "[a] " * 20,
        "|a|b|\n|-|-|\n" + "|one|two|\n" * 2_000,
        "- an item of a long list\n" * 3_000,
    ],
)
def test_a_long_text_within_the_limits_keeps_its_layout(text: str) -> None:
    assert PLAIN not in render(text, HERE).html


async def test_long_text_is_rendered_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def note(body: str, context: RenderContext) -> object:
        threads.append(threading.current_thread())
        return render(body, context)

    monkeypatch.setattr(reading, "render", note)
    texts = ("short", "middle " * 300, "long " * 3_000)
    await asyncio.gather(*(reading.render_page(text, RenderContext("a/limits")) for text in texts))
    short, *long = threads
    assert short is threading.main_thread()
    assert {thread.name for thread in long} == {"markdown_0"}


def test_excerpt_is_read_in_linear_time_without_paths_of_files() -> None:
    text = "/u" * (formatting.EXCERPT_SOURCE_CHARS // 2)
    assert loop_time.cpu_seconds(lambda: formatting.excerpt(text), 0.005) < 0.02
    assert formatting.excerpt("see **a** https://x.example/media/abc.png, /uploads/b or /u") == "see a or /u"
