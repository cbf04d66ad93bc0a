"""The one place where text becomes HTML: everything is escaped here, and nowhere else is markup
written.

A view is one element that holds a plain form for readers without scripts, its data as JSON, and a
small script that brings the renderer. It holds no counter, no clock and no address: the same record
gives the same bytes.
"""

from __future__ import annotations

import base64
import functools
import json
import zlib
from typing import Any

from nbmodule.views.frontend.bundle import element_script

# Bytes of JSON beyond which the data are deflated.
INLINE_DATA = 1200

_VOID = frozenset({"br", "img", "hr", "meta"})
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ATTRIBUTE = _TEXT | str.maketrans({'"': "&quot;", "'": "&#39;", "\n": "&#10;"})
_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class Markup(str):
    """Text that is HTML already, made by `tag`."""

    __slots__ = ()


def escape(text: object) -> Markup:
    """Make any text safe between tags; what `tag` made stays as it is.

    Example:
        >>> escape("<b>"), escape(tag("b", "<"))
        ('&lt;b&gt;', '<b>&lt;</b>')
    """
    return text if isinstance(text, Markup) else Markup(_encodable(str(text)).translate(_TEXT))


def tag(name_: str, *inside: object, **attributes: object) -> Markup:
    """Write an element; a trailing underscore of an attribute is dropped, an inner one is a hyphen,
    None leaves it out.

    Example:
        >>> tag("a", "x < y", href='"', class_="k")
        '<a href="&quot;" class="k">x &lt; y</a>'
    """
    parts = [name_]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        parts.append(
            name if value is True else f'{name}="{_encodable(str(value)).translate(_ATTRIBUTE)}"'
        )
    opening = f"<{' '.join(parts)}>"
    return Markup(
        opening if name_ in _VOID else f"{opening}{''.join(map(escape, inside))}</{name_}>"
    )


def _encodable(text: str) -> str:
    """Replace lone surrogates, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def script_json(data: object) -> str:
    r"""Write JSON that no reader of HTML takes for the end of a script.

    Example:
        >>> script_json({"a": "</script>"})
        '{"a":"\\u003c/script\\u003e"}'
    """
    return _json(data).translate(_SCRIPT)


def deflate_text(text: str) -> str:
    """Deflate a text and write it in letters."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def packed_data(data: dict[str, Any]) -> dict[str, str]:
    """Deflate the data of a view for a message; `unpack` of `views/frontend/base.js` reads them."""
    return {"z": deflate_text(_json(data))}


def _json(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def view_element(view: str, data: str, plain_form: Markup, key: str | None = None) -> Markup:
    """Write the element of one view.

    Args:
        view: The name of the view, which is a file of the front end.
        data: The text that the page reads; see `data_text`.
        plain_form: The HTML that is shown without scripts.
        key: The key by which a kernel knows the view.
    """
    live = f' data-view="{key}"' if key else ""
    return Markup(
        f'<nbm-view data-nbm="{element_script(view)[0]}"{live} '
        f'data-lm-suppress-shortcuts="true">{plain_form}'
        f'<script type="application/json">{data}</script>{_loader(view)}</nbm-view>'
    )


def data_text(data: dict[str, Any]) -> str:
    """Write the data of a view, deflated where that is worth it."""
    is_short = len(_json(data)) <= INLINE_DATA
    return script_json(data if is_short else packed_data(data))


_LOADER = """<script>(()=>{
const g = globalThis, k = "%s", text = "%s";
const begin = e => e.nbmBegin?.();
const wake = () => document.querySelectorAll(`nbm-view[data-nbm="${k}"]`).forEach(begin);
if (g.nbmStarts?.has(k)) return wake();
const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
new Response(stream).text().then(code => {
if (g.nbmStarts?.has(k)) return wake();
const s = document.createElement("script");
s.textContent = code; document.head.append(s); s.remove()})})()</script>"""


@functools.cache
def _loader(view: str) -> str:
    """Return a script that brings the renderer, deflated, once for all outputs of one kind on a
    page.
    """
    key, text = element_script(view)
    return _LOADER % (key, deflate_text(text))
