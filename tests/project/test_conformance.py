"""The conformance page says what the tests say."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_conformance_page_is_made_from_the_tests():
    spec = importlib.util.spec_from_file_location(
        "make_conformance", ROOT / "tools" / "make_conformance.py"
    )
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.PAGE.read_text() == maker.page(), "run `python tools/make_conformance.py`"
