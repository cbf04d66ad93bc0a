"""The line between a running loop and the views of it in a page: an anywidget that is itself never shown.

The output of the cell holds HTML only, which draws itself. The widget's script finds the views of its run in the page and
joins them to the kernel, so that a saved notebook never holds a widget view, and an exported page never goes blank.
Where outputs and widgets live in separate documents (VS Code, Colab) the widget is a second output that draws the view.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from nbmodule.views.joined.link import link_class, needs_second_output
from nbmodule.views.page.bundle import read_frontend, widget_module

_SHOWING = "\n".join(
    [
        "const show = ({ model, el }) => {",
        "  const page = globalThis;",
        "  const live = (page.nbmLive ??= { channels: new Map(), views: new Map() });",
        '  const data = JSON.parse(model.get("record"));',
        "  return render(el, data, live.channels.get(data.run) ?? null);",
        "};",
    ]
)


@functools.cache
def _widget_class(shown: bool) -> type:
    link = read_frontend("live_link.js")
    if not shown:
        return link_class(link)
    body = link.replace("export default", "const joined =")
    return link_class(
        f"{widget_module('live', ('render',))}\n{body}\n{_SHOWING}\nexport default {{ ...joined, render: show }};"
    )


class RunLink:
    """Messages to and from the views of one run.

    Args:
        run: Name of the run, which the views carry too.
        hear: Called with each message of a page, in whatever thread it arrives; it must only store it.
        shown: Whether the widget itself draws; where this is needed if not given.
        record: Gives the run as JSON, for places where the widget itself draws.
    """

    def __init__(
        self, run: str, hear: Callable[[dict[str, Any]], None], record: Callable[[], str], shown: bool | None = None
    ) -> None:
        self.is_shown = needs_second_output() if shown is None else shown
        self._widget: Any = _widget_class(self.is_shown)(hear, run=run, record=record() if self.is_shown else "")

    def show(self, display: Callable[[Any], None] | None = None) -> None:
        """Display the widget, where it is what draws; with the function of another place than IPython if one is given."""
        if display is not None:
            display(self._widget)
            return
        from IPython.display import display as show

        show(self._widget)

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        """Send a message to all pages."""
        self._widget.send(content, buffers)

    def close(self) -> None:
        """End the line; the views keep what they have."""
        self._widget.close()
