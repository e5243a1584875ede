"""The weights of the ranking and all other constants that scores depend on.

The values were chosen with `python -m bench.tuning` or by hand. `ranking.py` contains the formula, and
docs/architecture/62-ranking.md shows the effect of each signal.
"""

from __future__ import annotations

import msgspec

from sixfold.core.clock import DAY_US


class Saturation(msgspec.Struct, frozen=True):
    """The parameters of BM25: `k1` for term saturation and `b` for length normalization."""

    k1: float
    b: float


_PAGE, _FOLDER = Saturation(k1=1.1, b=0.3), Saturation(k1=1.5, b=0.8)


class Weights(msgspec.Struct, frozen=True):
    """The weights of the signals, and the parameters of their formulas."""

    # Signals of the text and its surroundings, scaled so that the best page has 1.
    text: float = 0.5
    # The best passage, which has the score of the text if the page is one passage.
    passage: float = 0.5
    # The texts of the pages before and after this one in its folder.
    previous: float = 0.4
    next: float = 0.25
    previous_but_one: float = 0.2
    next_but_one: float = 0.1
    # A reply: the text of the page before this one, if that page asks a question.
    reply: float = 0.6
    # The folder as one document.
    folder: float = 1.0
    # The words in the names of the folders.
    path: float = 2.0
    # The fraction of the signals of neighbors and folder that applies to a self-contained article.
    article: float = 0.3
    # A replacement of a misspelled word.
    spelling: float = 0.4

    # Signals in addition to the words: a page about every name in the query, ...
    entities: float = 0.12
    # ... a page whose whole title is in the query, ...
    title: float = 0.8
    # ... a part of a folder has this share, since its title is seldom unique, ...
    part_title: float = 0.5
    # ... a page whose title contains all words of the query, ...
    entitled: float = 1.0
    # ... a page that contains all words of the query, ...
    complete: float = 0.4
    # ... among those, a page in which the words are adjacent, which `service.py` adds, ...
    phrase: float = 0.4
    # ... a page that is linked with such a page, which is the second hop of a question, ...
    hop: float = 0.8
    # ... the best text among linked pages, ...
    links: float = 0.2
    # ... a page that makes a statement instead of asking a question, ...
    statement: float = 0.15
    # ... a page with much content, ...
    substance: float = 0.2
    # ... an answer to a question about a relation, such as "who works at Acme", ...
    relation: float = 1.5
    # ... a page with a time, a number or a name, if the question asks for one, ...
    answer: float = 0.2
    # ... a page of the requested time, such as "last week", ...
    when: float = 0.6
    # ... the newest page, ...
    recency: float = 0.01
    # ... and the page nearest to the query's vector, with a share for its neighbors.
    meaning: float = 0.5
    meaning_previous: float = 0.2
    meaning_next: float = 0.2

    page: Saturation = _PAGE
    whole_folder: Saturation = _FOLDER
    # In a folder with more pages, the signal of the folder decreases.
    crowd: int = 30
    # A page with more links than this passes a smaller value to each by `hop`.
    hop_crowd: int = 4


WEIGHTS = Weights()
# The number of best pages whose links are followed.
MAX_LINKING = 50
HALF_WORDS = 15
HALF_LIFE_US = 90 * DAY_US
# The minimum cosine of a result that does not share a word with the query.
NEAR = 0.25
# A query with at least this many words is a question, for which neighbors of a matching page may be results.
SENTENCE = 3
# The scores of a page whose title or text contains a query of stop words.
STOP_WORDS_IN_TITLE, STOP_WORDS_IN_TEXT = 1.0, 0.5
# The weight of a word of the title relative to a word of the body. It is included in stored entries, so a
# change requires a new `FORM` in indexing/entries.py.
TITLE_WEIGHT = 2
# More times, numbers or names than this do not make an answer more likely; also included in stored entries.
ENOUGH_ANSWERS = 2
# Pages below this fraction of the best score do not affect their neighbors.
MIN_PASSED_SHARE = 0.4
# The signal `relation`: the scores of the requested page and of the page with the sentence.
RELATION_ANSWER, RELATION_SOURCE = 1.0, 0.6
# Above this number of pages with the same statement, each counts less.
RELATION_SOURCES = 3
# The factor for a statement about a time other than the requested one.
RELATION_OTHER_TIME = 0.25
# The reasons for the parts of a score that the memory page shows.
LABELS = {
    "text": "words on the page",
    "passage": "words in this passage",
    "previous": "the previous page",
    "next": "the next page",
    "reply": "replies to a question",
    "folder": "same folder",
    "path": "folder name",
    "entities": "names in your question",
    "title": "its title is in your question",
    "hop": "linked with the page that you name",
    "links": "linked pages",
    "answer": "has what the question asks for",
    "relation": "matches the relation",
    "when": "matches the time",
    "statement": "contains a statement",
    "substance": "has substantial text",
    "recency": "recently changed",
    "meaning": "meaning",
    "entitled": "all words are in its title",
    "complete": "has all words",
    "phrase": "words next to each other",
    "stop_words": "has exactly these words",
}
