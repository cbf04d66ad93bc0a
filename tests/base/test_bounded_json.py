from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.base.bounded_json import dump_json, parse_json
from nbmodule.errors import FileFormatError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_parsing_undoes_dumping(value):
    assert parse_json(dump_json(value, "value"), "x") == value
    assert json.loads(dump_json(value, "value")) == value


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 10**6, b"1" * 10**5, b"nul"])
def test_text_that_is_no_json_is_refused(text):
    with pytest.raises(FileFormatError, match=r"read the head: it is not JSON \(.*is damaged"):
        parse_json(text, "the head")


def test_more_objects_than_memory_should_hold_are_refused():
    with pytest.raises(FileFormatError, match="18000003 bytes of JSON are more than allowed here"):
        parse_json(b"[" + b"[]," * 6_000_000 + b"1]", "the head")
