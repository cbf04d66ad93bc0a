import json
import re
import shutil
import subprocess

import pytest

from nbmodule.views.frontend import bundle
from nbmodule.views.frontend.bundle import element_script, read_frontend, widget_module

VIEWS = ["modules", "variables", "calls", "returns", "difference", "curve", "array", "note"]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_brings_only_the_modules_that_it_imports_and_the_whole_style_sheet(view):
    _, script = element_script(view)
    assert f"const ${view} = " in script
    for other in set(VIEWS) - {view}:
        assert f"const ${other} = " not in script
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    assert json.dumps(read_frontend("styles.css"))[1:-1] in script


@pytest.mark.parametrize(
    "line", ['import x from "./y.js";', "export default 1;", 'export * from "./y.js";']
)
def test_a_form_of_import_or_export_that_cannot_be_joined_is_an_error(monkeypatch, line):
    monkeypatch.setattr(bundle, "read_frontend", lambda name: line)
    with pytest.raises(ValueError, match="Cannot join views/frontend/note.js"):
        bundle._scope("note")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("space", [" ", ""], ids=["written", "minified"])
def test_joined_modules_give_each_other_their_exports(monkeypatch, tmp_path, space):
    minified = {
        "a.js": f"const q = (x) => x + 1;\nexport{space}{{q as add,{space}q as more}};",
        "b.js": f'import{space}{{add as f,{space}more}}{space}from{space}"./a.js";\n'
        "export const two = `import { x }\n${f(more(0))}`;",
        "styles.css": "",
        "base.js": "export function useStyles(text) {}",
    }
    monkeypatch.setattr(bundle, "read_frontend", minified.__getitem__)
    script = tmp_path / "joined.mjs"
    script.write_text(widget_module.__wrapped__("b", ("two",), "console.log(two);"))
    done = subprocess.run(["node", script], capture_output=True, text=True, check=True)
    assert done.stdout == "import { x }\n2\n"
