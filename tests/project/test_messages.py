"""The page of messages lists the texts of the code, and they are plain."""

import re

import pytest

from tools import make_messages

PAGE = make_messages.PAGE.read_text(encoding="utf-8")
# Words and phrases that STYLE's readers would have to learn first, and what to write.
RETIRED = {
    r"\b(?:is|are|was|were) (?:told|said|heard|looked at)\b": "reported, inspected",
    r"\bas it stands\b": "unconverted",
    r"\bcure\b": "fix",
    r"\bgoes by\b": "an active verb",
}


def test_the_page_lists_every_text_of_the_package():
    texts = make_messages.all_texts()
    assert make_messages.page_texts(PAGE) == texts, "run `python tools/make_messages.py`"


@pytest.mark.parametrize("pattern", RETIRED)
def test_texts_use_standard_words(pattern):
    for line in PAGE.splitlines():
        assert not (line.startswith("- ") and re.search(pattern, line)), RETIRED[pattern]


def test_texts_are_read_from_code_without_docstrings():
    source = '''
"""Not this text of a module."""
x = f"{a} has no variable {b} of this name"
y = ("one text that is " "joined from two parts")
'''
    first, second = make_messages._python_texts(source)
    assert first == "{...} has no variable {...} of this name"
    assert second == "one text that is joined from two parts"
