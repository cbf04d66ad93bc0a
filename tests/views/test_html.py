import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.views.display.show import mimebundle
from nbmodule.views.renderers.html import _loader, script_json, tag
from nbmodule.views.renderers.static import plain_form_of


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\x00")))
def test_any_text_survives_between_tags_and_in_attributes(text):
    seen = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append(dict(attrs))

        def handle_data(self, data):
            seen.append(data)

    reader = Reader(convert_charrefs=True)
    reader.feed(tag("b", text, title=text))
    reader.close()
    assert seen[0]["title"] == text
    assert "".join(seen[1:]) == text


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_json_in_a_script_is_the_same_data_and_ends_no_script(data):
    text = script_json(data)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == data


def test_the_same_record_gives_the_same_bytes(records):
    for make in records.values():
        assert mimebundle(make()) == mimebundle(make())


@pytest.mark.parametrize(
    ("name", "most"),
    [("modules", 2_400), ("variables", 4_500), ("calls", 2_800), ("difference", 1_700)],
)
def test_the_content_of_a_small_view_takes_little_room(records, content_of, name, most):
    assert len(content_of(records[name]())) <= most


@pytest.mark.parametrize("view", ["modules", "variables", "calls", "graph", "live", "inspect"])
def test_the_script_of_a_view_leaves_room_for_its_content_in_250_kb(view):
    assert len(_loader(view)) <= 100_000


def test_a_view_asks_for_nothing_from_outside(record):
    text = mimebundle(record)["text/html"]
    assert not re.search(r"(src|href)=.?(https?:)?//|@import|url\(", text)
    assert " id=" not in text


def test_the_form_without_scripts_folds_and_holds_all_words(records):
    text = plain_form_of(records["modules"]())
    assert (text.count("<details"), text.count("<details open")) == (2, 1)
    said = "12 × Block|BatchNorm2d|2 buffers|shared with decoder.out|built on first call"
    assert [word for word in said.split("|") if word not in text] == []
