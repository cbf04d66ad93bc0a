"""The documentation builds without a warning, and its pages hold what a reader with any screen,
theme or aid needs.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.project.conftest import ROOT, run

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["color-contrast", "label", "button-name", "link-name", "image-alt", "svg-img-alt", "aria-roles", "aria-required-attr",
         "aria-required-children", "aria-required-parent", "aria-valid-attr", "aria-valid-attr-value", "aria-hidden-focus",
         "select-name", "role-img-alt", "nested-interactive", "document-title", "html-has-lang", "duplicate-id-aria"]  # fmt: skip


LOOK = """async rules => {
  const r = await axe.run("article", { runOnly: { type: "rule", values: rules } });
  return {
    violations: r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary]),
    inside: r.passes.flatMap(p => p.nodes).filter(n => Array.isArray(n.target[0])).length,
  };
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages. Of those that run code only the gallery does: the notebooks and the code of
    all pages are tests elsewhere.
    """
    folder = tmp_path_factory.mktemp("docs")
    for name in ("docs", "notebooks"):
        made = ("_build", "reference", "jupyter_execute", "*.ipynb", ".*", "__pycache__")
        ignored = shutil.ignore_patterns(*made)
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    env = {
        "NBMODULE_DOCS_EXECUTION": "force",
        "NBMODULE_DOCS_NOT_EXECUTED": "notebooks/* views/*",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", str(ROOT))]),
    }
    done = run(*command, folder / "docs", folder / "built", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "built"


def test_every_public_name_is_in_the_reference(pages):
    import nbmodule as nb

    written = "".join(page.read_text() for page in (pages / "reference").glob("*.html"))
    names = [name for name in nb.__all__ if not inspect.ismodule(getattr(nb, name))]
    assert [name for name in names if f'id="nbmodule.{name}"' not in written] == []


def test_the_pages_of_the_reference_stand_under_their_namespaces(pages, open_file):
    page = open_file(pages / "reference" / "index.html").page
    captions = page.locator("article p.caption").all_text_contents()
    names = [caption.strip().partition(":")[0] for caption in captions]
    assert names == ["nb", "nb.nn", "nb.F", "nb.optim", "nb.errors"]
    listed = page.locator("article .toctree-wrapper a").all_inner_texts()
    assert len(listed) == len(set(listed)) == len(list((pages / "reference").glob("*.html"))) - 1


def test_the_search_of_the_built_pages_works_from_a_file(pages, open_file):
    page = open_file(pages / "search.html").page
    page.locator("form input[name=q]").last.fill("explain_retrace")
    page.keyboard.press("Enter")
    # results are listed one after the other
    page.locator("#search-results li a[href*=compiled_again]").first.wait_for()


def test_the_sheet_is_one_page_of_paper_and_names_what_is_there(open_file, tmp_path):
    import nbmodule as nb

    source = (ROOT / "docs" / "sheet.html").read_text()
    named = set(re.findall(r"\bnb\.(\w+)", source))
    assert named - set(nb.__all__) == set() and len(named) > 20
    assert all(hasattr(nb.Live, name) for name in re.findall(r"\blive\.(\w+)", source))
    page = open_file(ROOT / "docs" / "sheet.html", width=1000)
    page.screenshot("docs/sheet")
    made = page.page.pdf(prefer_css_page_size=True)
    (tmp_path / "sheet.pdf").write_bytes(made)
    assert len(re.findall(rb"/Type\s*/Page\b", made)) == 1


def test_pages_fit_a_narrow_screen_and_ask_nobody_for_anything(pages, open_file):
    names = "index start gallery ideas/frames coming_from/torch recipes/training reference/layers"
    for name in (*names.split(), "performance"):
        page = open_file(pages / f"{name}.html", width=400)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 400, name


@pytest.mark.node
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_an_accessibility_engine_finds_nothing(pages, open_file, dark):
    for name in ("gallery", "start", "coming_from/torch"):
        page = open_file(pages / f"{name}.html", dark=dark, width=1280)
        drawn = "[...document.querySelectorAll('nbm-view')].every(view => view.shadowRoot)"
        page.page.wait_for_function(drawn)
        page.page.add_script_tag(path=AXE)
        found = page.page.evaluate(LOOK, RULES)
        page.screenshot(f"docs/{name.replace('/', '-')}-{'dark' if dark else 'light'}")
        assert found["violations"] == [], name
        assert (found["inside"] > 20) == (name == "gallery"), "the views are looked into too"
