"""The one place where text becomes HTML: everything is escaped here, and nowhere else is markup written.

A view is one element that holds a plain form for readers without scripts, its data as JSON, and a small script that
brings the renderer. It holds no counter, no clock and no address: the same record gives the same bytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from nbmodule.views.bundle import element_script

INLINE_DATA = 4096
"""Bytes of JSON beyond which the data are deflated."""

_VOID = frozenset({"br", "img", "hr", "meta"})
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ATTRIBUTE = _TEXT | str.maketrans({'"': "&quot;", "'": "&#39;", "\n": "&#10;"})
_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class Markup(str):
    """Text that is HTML already, made by `tag`."""

    __slots__ = ()


def escape(text: object) -> Markup:
    """Make any text safe between tags; what `tag` made stays as it is.

    Example:
        >>> escape('<b>'), escape(tag('b', '<'))
        ('&lt;b&gt;', '<b>&lt;</b>')
    """
    return text if isinstance(text, Markup) else Markup(_encodable(str(text)).translate(_TEXT))


def tag(kind: str, *inside: object, **attributes: object) -> Markup:
    """Write an element; a trailing underscore of an attribute is dropped, an inner one is a hyphen, None leaves it out.

    Example:
        >>> tag('a', 'x < y', href='"', class_='k')
        '<a href="&quot;" class="k">x &lt; y</a>'
    """
    parts = [kind]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        parts.append(name if value is True else f'{name}="{_encodable(str(value)).translate(_ATTRIBUTE)}"')
    opening = f"<{' '.join(parts)}>"
    return Markup(opening if kind in _VOID else f"{opening}{''.join(map(escape, inside))}</{kind}>")


def _encodable(text: str) -> str:
    """Replace lone surrogates, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def script_json(data: Any) -> str:
    r"""Write JSON that no reader of HTML takes for the end of a script.

    Example:
        >>> script_json({'a': '</script>'})
        '{"a":"\\u003c/script\\u003e"}'
    """
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).translate(_SCRIPT)


def packed(text: str) -> str:
    """Deflate a text and write it in letters."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 6)).decode()


def view_element(view: str, data: dict[str, Any], plain_form: Markup) -> Markup:
    """Write the element of one view.

    Args:
        view: The name of the view, which is a file of the front end.
        data: What the page reads; see `views.payload`.
        plain_form: What is shown without scripts.
    """
    return Markup(
        f'<nbm-view data-nbm="{element_script(view)[0]}" data-lm-suppress-shortcuts="true">{plain_form}'
        f'<script type="application/json">{data_text(data)}</script>{_loader(view)}</nbm-view>'
    )


def data_text(data: dict[str, Any]) -> str:
    """Write the data of a view, deflated where that is worth it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_SCRIPT) if len(text) <= INLINE_DATA else script_json({"z": packed(text)})


_LOADER = (
    '(()=>{const g=globalThis,k="%s",wake=()=>document.querySelectorAll(`nbm-view[data-nbm="${k}"]`)'
    ".forEach(e=>e.nbmBegin?.());if(g.nbmStarts?.has(k))return wake();"
    'new Response(new Blob([Uint8Array.from(atob("%s"),c=>c.charCodeAt(0))]).stream()'
    '.pipeThrough(new DecompressionStream("deflate"))).text().then(t=>{if(g.nbmStarts?.has(k))return wake();'
    'const s=document.createElement("script");s.textContent=t;document.head.append(s);s.remove()})})()'
)


def _loader(view: str) -> str:
    """A script that brings the renderer, deflated to a third, once for all outputs of one kind on a page."""
    key, text = element_script(view)
    return f"<script>{_LOADER % (key, packed(text))}</script>"
