"""The catalog states the version of each embedded engine, which replay compares with a file's manifest."""

from __future__ import annotations

import pytest

from sixfold import import_string
from sixfold.app import catalog

EMBEDDED = {
    name: row for name, row in catalog.models_document()["engines"].items() if row["kind"] == "embedded"
}


@pytest.mark.parametrize("name", EMBEDDED)
def test_catalog_states_the_version_of_the_engine(name: str) -> None:
    try:
        engine = import_string.load(EMBEDDED[name]["factory"])
    except ImportError as error:
        pytest.skip(f"needs an optional package: {error}")
    version = getattr(engine, "version", None)
    if not isinstance(version, str):
        pytest.skip("its version depends on its options")
    assert EMBEDDED[name]["version"] == version
