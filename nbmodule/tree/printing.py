"""The text of a Container, and its display in a notebook or on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self, TextIO

import jax
import numpy as np
from jax.core import Tracer

from nbmodule.base.format import cut_middle, printable
from nbmodule.base.notebook import running_kernel
from nbmodule.base.sockets import socket
from nbmodule.errors import PathError
from nbmodule.tree.files import FileMethods
from nbmodule.tree.leaf import is_array
from nbmodule.tree.nested import Nested, Settings

_LONGEST = 2000  # characters of a leaf that is no array


class PrintMethods(FileMethods):
    """Write Containers as text, and display them."""

    __slots__ = ()

    def cont_sort_by_key(self) -> Self:
        """Sort the keys of all levels, also with `alphabetical_keys=False`.

        Example:
            >>> list(nb.Container(b=1, a=2, alphabetical_keys=False).cont_sort_by_key())
            ['a', 'b']
        """
        return self._with_settings(alphabetical_keys=True)

    def cont_show(self) -> None:
        """Show the Container: richly in a notebook, in color on a terminal, else as text.

        Example:
            >>> nb.Container(a=1).cont_show()
            {
                a: 1
            }
        """
        if running_kernel() is not None:
            socket("show")(self)
        else:
            print(container_text(self, color=wants_color(sys.stdout)))

    def cont_show_sub_container(self, sub_cont_or_keychain: Any) -> None:
        """Show the whole, with a sign at the start of the lines of one part.

        Args:
            sub_cont_or_keychain: The key chain of the part, or a Container that is identical to it.

        Raises:
            PathError: if the part does not exist.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_show_sub_container("b")
              {
                  a: 1,
            >     b: {
            >         c: 2
            >     }
              }
        """
        if isinstance(sub_cont_or_keychain, PrintMethods):
            chain = self.cont_find_sub_container(sub_cont_or_keychain, False)
            if not isinstance(chain, str):
                raise PathError(
                    "the Container has no part that is identical to the other Container."
                )
        else:
            chain = sub_cont_or_keychain
            self.cont_at_key_chain(chain)
            chain = "/".join(self._keys_of(chain) or ())
        print(container_text(self, marked=[chain], color=wants_color(sys.stdout)))

    def cont_with_print_limit(self, print_limit: int | None, inplace: bool = False) -> Self:
        """Return a copy that prints the values of arrays up to this size; None prints all.

        Example:
            >>> nb.Container(a=jnp.ones(3)).cont_with_print_limit(2)
            {
                a: (<class ArrayImpl> dtype=float32 shape=[3])
            }
        """
        return self._with_settings(inplace, print_limit=print_limit)

    def cont_with_print_indent(self, print_indent: int, inplace: bool = False) -> Self:
        """Return a copy with another indentation of levels, in spaces.

        Example:
            >>> nb.Container(a={"b": 1}).cont_with_print_indent(2)
            {
              a: {
                b: 1
              }
            }
        """
        return self._with_settings(inplace, print_indent=print_indent)

    def cont_with_key_length_limit(
        self, key_length_limit: int | None, inplace: bool = False
    ) -> Self:
        """Return a copy that prints longer keys shortened in the middle.

        Example:
            >>> nb.Container(encoder_weight=1).cont_with_key_length_limit(7)
            {
                enc…ght: 1
            }
        """
        return self._with_settings(inplace, key_length_limit=key_length_limit)


class _Line(NamedTuple):
    chain: str
    depth: int
    key: str | None
    leaf: Any
    ending: str


def container_text(
    container: Nested,
    *,
    marked: Iterable[str] = (),
    color: bool = False,
    max_lines: int | None = None,
) -> str:
    """Write a Container as text.

    Args:
        container: The Container.
        marked: Key chains whose lines begin with `> `; the others are indented by as much. `""` is
            the whole.
        color: Color the keys for a terminal.
        max_lines: Cut the text here; a last line counts what is left out.

    Example:
        >>> c = nb.Container(linear0={"b": jnp.ones(64), "w": jnp.ones((64, 3))}, n=2)
        >>> print(container_text(c, marked=["linear0/b"]))
          {
              linear0: {
        >         b: (<class ArrayImpl> dtype=float32 shape=[64]),
                  w: (<class ArrayImpl> dtype=float32 shape=[64, 3])
              },
              n: 2
          }
    """
    settings, marked = container._settings, list(marked)
    rows, lines = list(_lines(container)), []
    for row in rows[:max_lines]:
        sign = ("> " if _is_marked(row.chain, marked) else "  ") if marked else ""
        text = _render(row, settings, color)
        lines += [f"{sign}{line}".rstrip() for line in text.split("\n")]
    if max_lines is not None and max(len(rows), len(lines)) > max_lines:
        left = max(len(rows) - max_lines, 1)
        lines = [*lines[:max_lines], f"… {left:,} more rows: print(container)"]
    return "\n".join(lines)


def _is_marked(chain: str, marked: list[str]) -> bool:
    return any(not item or chain == item or chain.startswith(f"{item}/") for item in marked)


def _lines(
    level: Nested, chain: str = "", depth: int = 0, key: str | None = None, comma: str = ""
) -> Iterator[_Line]:
    """List the lines of a level with its braces; an empty level is one line."""
    if not level:
        yield _Line(chain, depth, key, None, "{}" + comma)
        return
    yield _Line(chain, depth, key, None, "{")
    items = list(level.items())
    for location, (name, value) in enumerate(items):
        inner = f"{chain}/{name}" if chain else name
        separator = "," if location < len(items) - 1 else ""
        if isinstance(value, PrintMethods):
            yield from _lines(value, inner, depth + 1, name, separator)
        else:
            yield _Line(inner, depth + 1, name, (value,), separator)
    yield _Line(chain, depth, None, None, "}" + comma)


def _render(line: _Line, settings: Settings, color: bool) -> str:
    indent = " " * (settings.print_indent * line.depth)
    head, width = indent, len(indent)
    if line.key is not None:
        key = printable(line.key)
        if settings.key_length_limit is not None:
            key = cut_middle(key, settings.key_length_limit)
        shown = f"\x1b[32m{key}\x1b[0m" if color else key
        head, width = f"{indent}{shown}: ", len(indent) + len(key) + 2
    if line.leaf is None:
        return head + line.ending
    text = leaf_text(line.leaf[0], settings.print_limit)
    return head + text.replace("\n", "\n" + " " * width) + line.ending


def leaf_text(leaf: Any, limit: int | None = 10) -> str:
    """Write one leaf; an array with more than `limit` elements as type, dtype and shape.

    Example:
        >>> (
        ...     leaf_text(jnp.arange(3)),
        ...     leaf_text(np.zeros((4, 5))),
        ...     leaf_text("{}"),
        ...     leaf_text([jnp.ones(99)]),
        ... )
        ('Array([0, 1, 2], dtype=int32)', '(<class ndarray> dtype=float64 shape=[4, 5])', "'{}'",
         'list[1] [(<class ArrayImpl> dtype=float32 shape=[99])]')
    """
    if is_array(leaf):
        return _array_text(leaf, limit)
    if isinstance(leaf, (list, tuple)) and any(
        is_array(item) or isinstance(item, (list, tuple)) for item in leaf
    ):
        shown = [leaf_text(item, limit).replace("\n", " ") for item in leaf[:limit]]
        more = ", …" if len(shown) < len(leaf) else ""
        return f"{type(leaf).__name__}[{len(leaf)}] [{', '.join(shown)}{more}]"
    try:
        text = repr(leaf)
    except Exception as error:  # noqa: BLE001 - a user's repr may fail
        return f"<{type(leaf).__name__}, whose repr raised {type(error).__name__}>"
    text = "\n".join(printable(line) for line in text.split("\n"))
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"


def _array_text(leaf: Any, limit: int | None) -> str:
    is_traced, is_on_host = isinstance(leaf, Tracer), isinstance(leaf, np.ndarray)
    is_array_of_jax = isinstance(leaf, jax.Array) and not is_traced
    is_deleted = is_array_of_jax and leaf.is_deleted()
    can_be_read = is_on_host or (is_array_of_jax and leaf.is_fully_addressable and not is_deleted)
    if can_be_read and (limit is None or leaf.size <= limit):
        return repr(leaf)
    state = " deleted" if is_deleted else ""
    return f"(<class {type(leaf).__name__}> dtype={leaf.dtype} shape={list(leaf.shape)}{state})"


def wants_color(stream: TextIO) -> bool:
    """Return True if output is a terminal and `NO_COLOR` is not set.

    Example:
        >>> import io
        >>> wants_color(io.StringIO())
        False
    """
    return not os.environ.get("NO_COLOR") and bool(getattr(stream, "isatty", lambda: False)())


_PREVIEW_LINES = 60


def mime_bundle(container: Nested) -> dict[str, Any]:
    """Return the MIME bundle of a Container: text of at most 60 lines, and the view."""
    text = {"text/plain": container_text(container, max_lines=_PREVIEW_LINES)}
    try:
        return text | socket("display")(container)
    except Exception:  # noqa: BLE001 - no display may break a cell
        return text
