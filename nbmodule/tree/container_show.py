"""Methods of Container that show it: as text everywhere, richly where a higher room has plugged a display in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Self

from nbmodule.errors import PathError
from nbmodule.tree.container_compare import Compare
from nbmodule.tree.nested import Nested
from nbmodule.tree.sockets import socket
from nbmodule.tree.text import container_text, wants_color

_PREVIEW_LINES = 60


class Show(Compare):
    """Displays."""

    __slots__ = ()

    def __repr__(self) -> str:
        return container_text(self)

    __str__ = __repr__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Give the forms a notebook can choose from: text of at most 60 lines, and what the display socket adds."""
        bundle = {"text/plain": container_text(self, max_lines=_PREVIEW_LINES)}
        try:
            rich = socket("display")(self)
        except Exception:  # noqa: BLE001 - no display may break a cell, and the text is complete without it
            rich = None
        if isinstance(rich, dict):
            bundle |= rich
        wanted = {kind: value for kind, value in bundle.items() if not include or kind in include}
        return {kind: value for kind, value in wanted.items() if not exclude or kind not in exclude}

    def cont_show(self) -> None:
        """Show the Container: richly in a notebook, in color on a terminal, else as text.

        Example:
            >>> nb.Container(a=1).cont_show()
            {
                a: 1
            }
        """
        show = _show_of_front_end()
        if show is not None:
            show(self)
        else:
            print(container_text(self, color=wants_color(sys.stdout)))

    def cont_show_sub_container(self, sub_cont_or_keychain: Any) -> None:
        """Show the whole with one part marked, by a sign at the start of its lines.

        Args:
            sub_cont_or_keychain: The key chain of the part, or a Container that is identical to it.

        Raises:
            PathError: if there is no such part.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_show_sub_container("b")
              {
                  a: 1,
            >     b: {
            >         c: 2
            >     }
              }
        """
        if isinstance(sub_cont_or_keychain, Nested):
            chain = self.cont_find_sub_container(sub_cont_or_keychain)
            if not isinstance(chain, str):
                raise PathError("the Container has no part that is identical to the one given; nothing was shown.")
        else:
            chain = sub_cont_or_keychain
            self.cont_at_key_chain(chain)
            chain = "/".join(self._keys_of(chain) or ())
        print(container_text(self, marked=[chain], color=wants_color(sys.stdout)))

    def cont_with_print_limit(self, print_limit: int | None, inplace: bool = False) -> Self:
        """Show arrays of up to so many elements with their values; None shows all.

        Example:
            >>> nb.Container(a=jnp.ones(3)).cont_with_print_limit(2)
            {
                a: (<class ArrayImpl> dtype=float32 shape=[3])
            }
        """
        return self._with_settings(inplace, print_limit=print_limit)

    def cont_with_print_indent(self, print_indent: int, inplace: bool = False) -> Self:
        """Move each level in by so many spaces.

        Example:
            >>> nb.Container(a={"b": 1}).cont_with_print_indent(2)
            {
              a: {
                b: 1
              }
            }
        """
        return self._with_settings(inplace, print_indent=print_indent)

    def cont_with_key_length_limit(self, key_length_limit: int | None, inplace: bool = False) -> Self:
        """Show longer keys with their middle cut out.

        Example:
            >>> nb.Container(encoder_weight=1).cont_with_key_length_limit(7)
            {
                enc…ght: 1
            }
        """
        return self._with_settings(inplace, key_length_limit=key_length_limit)


def _show_of_front_end() -> Callable[[Any], Any] | None:
    """Give what shows values in a notebook; None where there is none, or where the display room is not installed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if not hasattr(shell, "kernel"):
        return None
    try:
        return socket("show")
    except ImportError:
        return None
