"""Rendering of chat messages: formulas, code, partial blocks, hostile text; and message versions."""

from __future__ import annotations

import threading

import pytest

from sixfold.core.gateway.conversations.chats import ChatVersion
from sixfold.ui.chat import code_blocks, rendering, versions
from sixfold.ui.chat.rendering import GrowingText
from sixfold.ui.memory import formulas
from tests.loop_time import cpu_seconds

ANSWER = """Here is *what* you asked.

# A heading

1. one **bold**
2. two

   - inner

```python
def f(x):

    return "<b>"
```

$$
\\frac{a}{b}

= c
$$

| a | b |
|---|---|
| 1 | 2 |

The end costs $5 or $6, with $x^2$.
"""


async def grown(text: str, size: int) -> GrowingText:
    """Return a text that arrived in chunks."""
    growing = GrowingText()
    for at in range(0, len(text), size):
        growing.push(text[at : at + size])
        # Allow an update at any time.
        growing.next_update = 0.0
        await growing.update(text[at : at + size])
    return growing


@pytest.mark.parametrize("size", [1, 3, 40, 1000])
async def test_html_of_partial_renderings_equals_that_of_the_whole(size: int) -> None:
    growing = await grown(ANSWER, size)
    pieces = "".join(growing.blocks) + rendering.render(growing.text[growing._complete :])
    assert pieces == rendering.render(ANSWER)
    assert growing.text == ANSWER


async def test_a_growing_list_has_its_layout_and_its_last_line_is_text() -> None:
    growing = await grown("Two:\n\n- **a**\n- b\n- and", 1)
    assert growing.blocks == ["<p>Two:</p>\n"]
    assert growing.growing == "<ul>\n<li><strong>a</strong></li>\n<li>b</li>\n</ul>\n"
    assert growing.open == "- and"


def test_code_has_colors_and_formulas_are_mathml() -> None:
    html = rendering.render(ANSWER)
    assert '<span class="k">def</span> <span class="f">f</span>' in html
    assert "&lt;b&gt;" in html
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mrow><mfrac>' in html
    assert "costs $5 or $6, with <math" in html
    assert "<h3>A heading</h3>" in html


def test_code_with_a_long_run_of_spaces_has_no_colors() -> None:
    assert 'class="k"' in code_blocks.highlight("int a;" + "\n " * 49 + "b;", "c")
    code = "A " + "\n " * 9_999
    assert cpu_seconds(lambda: code_blocks.highlight(code, "c"), 0.05) < 0.1
    assert code_blocks.highlight(code, "c") == code


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("$'" + "\\\\" * 40, "bash"),
        ("$ echo $'" + "\\\\" * 40, "console"),
        ("RUN echo $'" + "\\\\" * 40, "docker"),
        ("all:\n\techo $'" + "\\\\" * 40, "make"),
        ("<?php <<<" + "é" * 40, "php"),
        ('raw"' + "\\\\" * 40, "scala"),
        ("```xquery\n" + "start " * 600 + "\n```\n", "markdown"),
    ],
    ids=["bash", "console", "docker", "make", "php", "scala", "markdown"],
)
def test_ambiguous_code_is_colored_in_little_time(code: str, language: str) -> None:
    assert cpu_seconds(lambda: code_blocks.highlight(code, language), 0.02) < 0.05


def test_code_does_not_select_other_lexers() -> None:
    block = "```scala\nclass A\n```\n"
    assert 'class="k"' not in code_blocks.highlight(block, "markdown")
    request = "GET / HTTP/1.1\nContent-Type: text/x-scala\n\nclass A"
    assert code_blocks.highlight(request, "http") == request


async def test_a_text_with_code_is_rendered_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    render = rendering.render

    def record(text: str) -> str:
        threads.append(threading.current_thread().name)
        return render(text)

    monkeypatch.setattr(rendering, "render", record)
    await rendering.rendered("a *short* text")
    await rendering.rendered("```python\nx = 1\n```")
    assert threads[0] == "MainThread"
    assert threads[1].startswith("chat-text")


@pytest.mark.parametrize(
    "latex", ["\\href{javascript:alert(1)}{x}", "\\style{color:red}{x}", "\\text{<b>}", "{" * 900, "x_1_2"]
)
def test_a_formula_has_no_links_styles_or_markup(latex: str) -> None:
    html = formulas.to_mathml(latex, block=False)
    assert not any(text in html for text in ("href", "style=", "<b>", 'javascript:alert(1)}{x}"'))


@pytest.mark.parametrize("text", ["$a", "\\(", "$$\n", "```\n", "- ", "> ", "| a ", "[[", "==a ", "*_`"])
def test_the_html_of_hostile_answers_is_bounded(text: str) -> None:
    body = (text * 100_000)[: rendering.MAX_CHARS]
    assert len(rendering.render(body)) < 20 * len(body)
    assert rendering.growth(body[:20_000]).complete <= 20_000


def test_versions_of_nested_edits_are_found_by_place() -> None:
    family = [
        ChatVersion("first", "", 0, 0),
        # This version replaces the third message.
        ChatVersion("second", "first", 2, 0),
        ChatVersion("third", "first", 2, 0),
        # This version replaces the fifth message of the second version.
        ChatVersion("fourth", "second", 4, 0),
    ]
    of = versions.by_place
    assert of("first", family) == {3: (("first", "second", "third"), 1)}
    assert of("second", family) == {3: (("first", "second", "third"), 2), 5: (("second", "fourth"), 1)}
    assert of("fourth", family) == {3: (("first", "second", "third"), 2), 5: (("second", "fourth"), 2)}
    visible = of("second", family)[3]
    assert (visible.previous, visible.next) == ("first", "third")
