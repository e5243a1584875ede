"""Checking a password takes equally long for an unknown address."""

from __future__ import annotations

from sixfold.ui.login import passwords


def test_dummy_hash_has_the_parameters_of_a_real_one() -> None:
    result = passwords.make("correct horse")
    assert result.split("$")[:4] == passwords._DUMMY_HASH.split("$")[:4]
    assert passwords.verify("correct horse", result)
    assert not passwords.verify("wrong horse", result)
    assert not passwords.verify("correct horse", None)
    assert not passwords.verify("correct horse", "what some other program left")
