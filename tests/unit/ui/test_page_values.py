"""The values of a rendered page are freed at once, without a collection of garbage."""

from __future__ import annotations

import gc
import weakref

from sixfold import errors
from sixfold.ui.templating import PageTemplates


def test_values_of_a_page_are_freed_when_it_is_rendered() -> None:
    pages = PageTemplates()
    pages.text("error.html", session=None, error=errors.NotFound("first"), request_id="req_1")
    gc.collect()
    gc.disable()
    try:
        error = errors.NotFound("second")
        reference = weakref.ref(error)
        text = pages.text("error.html", session=None, error=error, request_id="req_2")
        del error
        assert reference() is None
    finally:
        gc.enable()
    assert "second" in text
    # Macros that pages share still work.
    assert "third" in pages.text("error.html", session=None, error=errors.NotFound("third"), request_id="r")
