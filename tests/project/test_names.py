"""Names say what they name, and one word stands for one idea (tools/count_names.py)."""

from __future__ import annotations

import re

import pytest

from tools import count_names

# Wrong words and the standard ones: docs/contributing.md explains why.
RETIRED = {"box": "variable", "thing": "object", "door": "API", "cure": "fix", "told": "reported"}


def test_few_bound_names_are_vague():
    assert count_names.vague_share() < 0.02, "run `python tools/count_names.py nbmodule`"


def test_no_file_name_occurs_in_more_than_two_folders():
    assert count_names.repeated_file_names() == {}


def test_no_public_function_is_defined_in_more_than_two_files():
    assert count_names.repeated_functions() == {}


@pytest.mark.parametrize("word", RETIRED)
def test_docs_use_the_standard_term(word):
    pattern = re.compile(rf"\b{word}(?:s|es)?\b", re.IGNORECASE)
    pages = [count_names.ROOT / "README.md", *(count_names.ROOT / "docs").rglob("*.md")]
    for page in pages:
        for line in page.read_text(encoding="utf-8").splitlines():
            assert not pattern.search(line), f"{page}: write {RETIRED[word]!r} for {word!r}: {line}"
