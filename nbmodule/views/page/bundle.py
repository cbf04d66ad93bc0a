"""Joins the ES modules of this folder into one text, because an output and a widget arrive as one text.

The files in the repository are the files that run: each becomes one function scope that returns what it exports. Only two
forms are understood, and anything else that begins with `import` or `export` is an error: `import { a, b as c } from
"./d.js";` and `export function`, `export async function`, `export const`, `export class`. Whole-line comments and
indentation are left out, which needs no knowledge of the language as long as no template literal spans lines; the joiner
checks that too. `tight` then takes the spaces that only a reader needs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable
from importlib import resources

from nbmodule.views.page.tight import tight

_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\./([\w-]+)\.js";$')
_CLASS = re.compile(r"\.nbm-([\w-]+)")
_SPACES = re.compile(r" ?([{};,]) ?|(?<=:) ")  # of a style sheet: none of them means anything there
_BROKEN = re.compile(r";?\n(?=[})\]])|(?<=[;{,(])\n")  # where a statement ends, or goes on for certain
_TYPE = re.compile(r"/\*\* @type \{[^*]*\} \*/ ?")
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) ([A-Za-z_$][\w$]*)")


def read_frontend(name: str) -> str:
    """Read one file of the front end."""
    return resources.files("nbmodule.views.page").joinpath(name).read_text(encoding="utf-8")


@functools.cache
def element_script(view: str) -> tuple[str, str]:
    """Join what one kind of view needs to draw itself inside the element of a saved output.

    Args:
        view: The name of a view, which is also the name of its file.

    Returns:
        The key under which the script registers, made from its text, and the script.
    """
    names: dict[str, None] = {}
    for entry in ("base", "element", view):
        _collect(entry, names, ())
    body = "\n".join(_scope(name) for name in names)
    styles = _styles(body)
    key = hashlib.sha256((body + styles).encode()).hexdigest()[:12]
    last = f'$base.useStyles({styles});\n$element.define("{key}",{{{json.dumps(view)}:{_variable(view)}.render}});'
    return key, f"(()=>{{\n{body}\n{last}\n}})();"


@functools.cache
def widget_module(entry: str = "main", exports: tuple[str, ...] = ("mount",), after: str = "") -> str:
    """Join one entry file and all it imports into one ES module, as anywidget wants it.

    Args:
        entry: The file, without `.js`.
        exports: Names of the entry that the joined module exports too.
        after: Code that ends the module, which may use those names.
    """
    names: dict[str, None] = {}
    for file in ("base", entry):
        _collect(file, names, ())
    body = "\n".join(_scope(name) for name in names)
    styles = _styles(body)
    handed_on = f"export const {{{','.join(exports)}}}={_variable(entry)};"
    return f"{body}\n$base.useStyles({styles});\n{handed_on}\n{after}"


def _styles(script: str) -> str:
    """The style sheet as a string of JavaScript, without the rules of which the script names no class."""
    rules = _rules(_SPACES.sub(r"\1", squeeze(read_frontend("styles.css")).replace("\n", "")))
    words = set(re.findall(r"[\w-]+", script))
    words |= {word.removeprefix("nbm-") for word in words}
    return json.dumps("\n".join(rule for rule in rules if _applies(rule, words)))


def _rules(sheet: str) -> Iterable[str]:
    """The rules of a style sheet one by one; those that hold others stay whole."""
    depth = begin = 0
    for at, sign in enumerate(sheet):
        depth += (sign == "{") - (sign == "}")
        if sign == "}" and not depth:
            yield sheet[begin : at + 1]
            begin = at + 1


def _applies(rule: str, words: set[str]) -> bool:
    classes = set(_CLASS.findall(rule)) - {"view"}
    return not classes or not words.isdisjoint(classes)


def _variable(name: str) -> str:
    return f"${name.replace('-', '_')}"


def _collect(name: str, done: dict[str, None], above: tuple[str, ...]) -> None:
    """List a file after everything it imports."""
    if name in above:
        raise ValueError(f"views/page/{name}.js imports itself through {' > '.join((*above, name))}")
    if name in done:
        return
    for line in read_frontend(f"{name}.js").splitlines():
        if match := _IMPORT.match(line):
            _collect(match[2], done, (*above, name))
    done[name] = None


@functools.cache
def _scope(name: str) -> str:
    """Wrap one file into a function that returns its exports."""
    exports, lines = [], []
    for number, line in enumerate(squeeze(read_frontend(f"{name}.js")).splitlines(), 1):
        if match := _IMPORT.match(line):
            names = ",".join(part.strip().replace(" as ", ":") for part in match[1].split(","))
            line = f"const {{{names}}}={_variable(match[2])};"
        elif match := _EXPORT.match(line):
            exports.append(match[1])
            line = line.removeprefix("export ")
        elif line.startswith(("import ", "export ")):
            raise ValueError(f"views/page/{name}.js, kept line {number}: the joiner does not know this form: {line}")
        lines.append(line)
    body = _BROKEN.sub("", "\n".join(map(tight, lines)))
    return f"const {_variable(name)}=(()=>{{\n{body}\nreturn {{{','.join(exports)}}};\n}})();"


def squeeze(text: str) -> str:
    r"""Leave out whole-line comments, types, indentation and empty lines; nothing else within a line is touched.

    Example:
        >>> squeeze('// why\nconst a = 1; // kept\n\n  f((/** @type {number} */ x) => x);')
        'const a = 1; // kept\nf((x) => x);'
    """
    return "\n".join(_kept_lines(text.splitlines()))


def _kept_lines(lines: Iterable[str]) -> Iterable[str]:
    in_comment = False
    for line in lines:
        stripped = line.strip()
        if in_comment:
            in_comment = "*/" not in stripped
            continue
        if stripped.startswith("/*") and "*/" not in stripped:
            in_comment = True
            continue
        if not stripped or stripped.startswith("//") or (stripped.startswith("/*") and stripped.endswith("*/")):
            continue
        if stripped.replace("\\`", "").count("`") % 2:
            raise ValueError(f"a template literal spans lines, which the joiner cannot squeeze: {stripped}")
        yield _TYPE.sub("", stripped)
