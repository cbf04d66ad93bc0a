import re

import pytest

from nbmodule.views.page import bundle
from nbmodule.views.page.bundle import element_script, read_frontend, squeeze, widget_module
from nbmodule.views.page.tight import tight

VIEWS = ["modules", "variables", "calls", "returns", "difference", "curve", "array", "note"]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_brings_only_what_it_needs(view):
    _, script = element_script(view)
    assert f"const ${view}=" in script
    for other in set(VIEWS) - {view}:
        assert f"const ${other}=" not in script
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)


def test_the_key_changes_with_the_text(monkeypatch):
    key, _ = element_script("note")
    read = read_frontend
    monkeypatch.setattr(
        bundle, "read_frontend", lambda name: read(name) + ("\nconst x = 1;" if name == "note.js" else "")
    )
    bundle.element_script.cache_clear()
    bundle._scope.cache_clear()
    try:
        assert element_script("note")[0] != key
    finally:
        bundle.element_script.cache_clear()
        bundle._scope.cache_clear()


def test_the_widget_module_exports_mount():
    assert "export const {mount}=$main;" in widget_module()


def test_an_unknown_form_of_import_is_an_error(monkeypatch):
    monkeypatch.setattr(bundle, "read_frontend", lambda name: 'import x from "./y.js";')
    with pytest.raises(ValueError, match="the joiner does not know this form"):
        bundle._scope.__wrapped__("note")


def test_code_is_kept_and_comments_are_not():
    assert squeeze("/**\n * doc\n */\nconst a = 'http://x'; // kept\n  // gone\n") == "const a = 'http://x'; // kept"


def test_a_template_over_several_lines_is_refused():
    with pytest.raises(ValueError, match="template literal spans lines"):
        squeeze("const a = `x\n  y`;")


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("const a = b + c; // it's why", "const a=b+c;"),
        ("f(\"a = b\", 'c = d', /x = [/ ]+ y/g);", "f(\"a = b\",'c = d',/x = [/ ]+ y/g);"),
        ('const t = `a = ${b ? `c = ${d}` : ""} e`;', 'const t=`a = ${b ? `c = ${d}` : ""} e`;'),
        ("return a / b / c + +d - -e;", "return a/b/c+ +d- -e;"),
        ("go(async (x) => f((y) => y, (a, b) => a));", "go(async(x)=>f(y=>y,(a,b)=>a));"),
        ("const url = 'http://x'; return typeof x === /r/;", "const url='http://x';return typeof x===/r/;"),
    ],
)
def test_only_spaces_that_a_reader_needs_are_left_out(line, kept):
    assert tight(line) == kept


def test_rules_of_classes_that_a_script_does_not_name_are_left_out(monkeypatch):
    sheet = ".nbm-a{x: 1} .nbm-b, .nbm-c { y: 2; }\n@media print { .nbm-b { z: 3 } }"
    monkeypatch.setattr(bundle, "read_frontend", lambda name: sheet)
    assert bundle._styles('el("c")') == '".nbm-b,.nbm-c{y:2;}\\n@media print{.nbm-b{z:3}}"'.replace(
        "\\n@media print{.nbm-b{z:3}}", ""
    )
