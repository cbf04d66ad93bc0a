"""Join the ES modules of this folder into one script.

A notebook output and a widget each arrive as one text, and neither can import files. Each module
becomes a function scope that returns its exports; its code is not changed, and comments on lines
of their own are left out. The repository holds plain modules. `hatch_build.py` replaces them by
what esbuild makes of each when a wheel is built, so both spellings of `import` and `export` are
read: `export function f` and `export{a as f}`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from importlib import resources

_IMPORT = re.compile(r'^import ?\{([^}]+)\} ?from ?"\./([\w-]+)\.js";', re.MULTILINE)
_EXPORT = re.compile(
    r"^export ((?:async )?(?:function|const|class) ([A-Za-z_$][\w$]*))", re.MULTILINE
)
_EXPORTS = re.compile(r"^export ?\{([^}]+)\};", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/[ \t]*)\n", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


_FOLDER = resources.files("nbmodule.views.frontend")


def read_frontend(name: str) -> str:
    """Read one file of the front end."""
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


@functools.cache
def element_script(view: str) -> tuple[str, str]:
    """Join the modules that one kind of view needs to draw itself inside a saved output.

    Args:
        view: The name of a view, which is also the name of its file.

    Returns:
        The key under which the script registers (a hash of its text), and the script.
    """
    body = _join("base", "element", view)
    key = hashlib.sha256(body.encode()).hexdigest()[:12]
    register = f'$element.define("{key}", {{{json.dumps(view)}: ${view}.render}});'
    return key, f"(() => {{\n{body}\n{register}\n}})();"


@functools.cache
def widget_module(
    entry: str = "main", exports: tuple[str, ...] = ("mount",), after: str = ""
) -> str:
    """Join one entry file and all its imports into one ES module for anywidget.

    Args:
        entry: The file, without `.js`.
        exports: Names of the entry that the joined module exports.
        after: Code at the end of the module, which may use those names.
    """
    exported = f"export const {{{', '.join(exports)}}} = ${entry};"
    return f"{_join('base', entry)}\n{exported}\n{after}"


def _join(*entries: str) -> str:
    """Join the entries and their imports, each after its own imports, and add their style sheets.

    The sheet of a module has its name, as `live.css` of `live.js`; `styles.css` is that of all.
    """
    names: dict[str, None] = {}
    for entry in entries:
        _collect(entry, names)
    sheets = [f"{name}.css" for name in names if _FOLDER.joinpath(f"{name}.css").is_file()]
    css = "".join(map(read_frontend, ("styles.css", *sheets)))
    return "\n".join([*map(_scope, names), f"$base.useStyles({json.dumps(css)});"])


def _collect(name: str, done: dict[str, None]) -> None:
    """List a file after everything it imports."""
    if name not in done:
        for match in _IMPORT.finditer(read_frontend(f"{name}.js")):
            _collect(match[2], done)
        done[name] = None


def _scope(name: str) -> str:
    """Wrap one file into a function that returns its exports."""
    text = _COMMENT.sub("", read_frontend(f"{name}.js"))
    exports = [match[2] for match in _EXPORT.finditer(text)]
    for match in _EXPORTS.finditer(text):
        for part in match[1].split(","):
            local, _, public = part.strip().partition(" as ")
            exports.append(f"{public}: {local}" if public else local)
    text = _IMPORT.sub(_binding, text)
    text = _EXPORTS.sub("", _EXPORT.sub(r"\1", text))
    if unsupported := _OTHER.search(text):
        raise ValueError(
            f"Cannot join views/frontend/{name}.js: only named imports of one line from this "
            f"folder and named exports are supported, got {unsupported[0]!r}."
        )
    return f"const ${name} = (() => {{\n{text}\nreturn {{ {', '.join(exports)} }};\n}})();"


def _binding(match: re.Match[str]) -> str:
    names = match[1].replace(" as ", ": ")
    return f"const {{{names}}} = ${match[2]};"
