"""Leaves out the spaces of a line of JavaScript that only a reader needs: a view brings its code along, and a page has many views.

Strings, templates and regular expressions stay as they are. Only one space next to a sign goes, and not where two signs would
become one; names stay apart.
"""

from __future__ import annotations

import re

_SIGNS = frozenset("=+-*/%<>&|?:,;(){}[]!")
_WHOLE = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_EXPRESSION = re.compile(r"/(?:[^/\\\[]|\\.|\[(?:[^\]\\]|\\.)*\])+/[a-z]*")
_BEFORE_EXPRESSION = re.compile(r"(?:^|[(,=:\[!&|?{};+*%<>~^-]|=>|\breturn|\btypeof)\s*$")

_ALONE = re.compile(r"(?<![\w$])\((\w+)\)$")  # the one argument of a function, which needs no parentheses


def tight(line: str) -> str:
    r"""Leave out the spaces around signs, the parentheses around one argument, and a comment at the end.

    Example:
        >>> tight('const a = (x) => b + +x; // why'), tight('f("a = b", /a = b/, `a = ${b + 1}`)')
        ('const a=x=>b+ +x;', 'f("a = b",/a = b/,`a = ${b + 1}`)')
    """
    out, at = "", 0
    while at < len(line):
        sign = line[at]
        if line.startswith("//", at):
            break
        if line.startswith("=>", at):
            out = _ALONE.sub(r"\1", out)
        end = _end_of_whole(line, at, out)
        if end > at:
            out, at = out + line[at:end], end
        elif sign == " " and _may_go(out[-1:], line[at + 1 : at + 2]):
            at += 1
        else:
            out, at = out + sign, at + 1
    return out.rstrip()


def _end_of_whole(line: str, at: int, before: str) -> int:
    """The end of a string, template or regular expression that begins here; the place itself where none does."""
    if line[at] == "`":
        return _end_of_template(line, at)
    found = _WHOLE.match(line, at)
    if found is None and line[at] == "/" and _BEFORE_EXPRESSION.search(before):
        found = _EXPRESSION.match(line, at)
    return found.end() if found else at


def _end_of_template(line: str, at: int) -> int:
    """The place behind the template that begins here; those within its braces are part of it."""
    at, depth = at + 1, 0
    while at < len(line):
        if line[at] == "\\":
            at += 1
        elif line[at] == "`":
            if not depth:
                return at + 1
            at = _end_of_template(line, at) - 1
        elif line.startswith("${", at):
            depth, at = depth + 1, at + 1
        elif depth and line[at] == "{":
            depth += 1
        elif depth and line[at] == "}":
            depth -= 1
        at += 1
    return at


def _may_go(before: str, after: str) -> bool:
    if before == after and before in "+-":
        return False
    if before == "<" and after == "!":
        return False
    return before in _SIGNS or after in _SIGNS
