"""Named SQL parameters become typed numbers for PostgreSQL, and nothing else changes."""

from __future__ import annotations

import pytest

pytest.importorskip("asyncpg")

from sixfold.core.database import Query
from sixfold.store.postgres.binding import PostgresBinder, translate
from sixfold.store.postgres.connection import BEGUN, place


def test_a_parameter_has_the_type_of_its_value() -> None:
    inputs = translate("f(:a, :b, :c, :d, :a)", {"a": "x", "b": 1, "c": 0.5, "d": b"y"})
    assert inputs.text == "f($1::text, $2::bigint, $3::double precision, $4::bytea, $1::text)"
    assert inputs.names == ("a", "b", "c", "d")


def test_none_is_null_and_a_boolean_is_a_number() -> None:
    inputs = translate("f(:a, :b)", {"a": None, "b": True})
    assert inputs.text == "f(NULL, $1::bigint)"
    assert inputs.arguments({"a": None, "b": True}) == [1]


@pytest.mark.parametrize(
    ("document", "sent"),
    [
        (r'["a\u0000b"]', r'["a\ufffdb"]'),
        (r'["\u0000\u0000", "\\\u0000"]', r'["\ufffd\ufffd", "\\\ufffd"]'),
        (r'["\\u0000"]', r'["\\u0000"]'),
    ],
)
def test_an_escaped_nul_in_json_is_replaced(document: str, sent: str) -> None:
    statement = translate("f(:a::json, :b)", {"a": document, "b": document})
    assert statement.arguments({"a": document, "b": document}) == [sent, document]
    query = Query("f", {}, [{"a": document, "b": document}])
    assert PostgresBinder().changes("f(:a::json, :b)", query.each or (), query).columns == [
        [sent],
        [document],
    ]


@pytest.mark.parametrize("text", ["'a :b c'", "'it''s :b'", "x::text", "-- of :b\n1"])
def test_text_that_resembles_a_parameter_is_unchanged(text: str) -> None:
    assert translate(f"SELECT {text}", {}).text == f"SELECT {text}"


def test_time_is_that_of_the_database_unless_passed() -> None:
    assert translate(":now", {}).text == BEGUN
    assert translate(":now", {"now": 5}).text == "$1::bigint"


def test_statement_is_prepared_once_per_combination_of_types() -> None:
    bind = PostgresBinder()
    assert bind(":a", {"a": 1}) is bind(":a", {"a": 2})
    assert bind(":a", {"a": 1}) is not bind(":a", {"a": None})


def test_a_name_without_a_value_is_refused() -> None:
    with pytest.raises(KeyError):
        translate(":a", {})


def test_shown_database_url_has_no_password() -> None:
    assert place("postgresql://me:secret@db.example.com:5433/shop?sslmode=require") == (
        "postgresql://db.example.com:5433/shop"
    )
