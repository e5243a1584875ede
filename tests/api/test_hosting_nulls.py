"""A null field in a request is equivalent to an absent one."""

from __future__ import annotations

from sixfold.api.hosting import schemas


def test_null_field_is_equivalent_to_an_absent_one() -> None:
    names = ("input", "wait", "hardware", "variant", "webhook")
    request = schemas.run_request({"model": "ra2"} | dict.fromkeys(names))
    assert request == schemas.run_request({"model": "ra2"})
