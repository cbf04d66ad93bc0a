"""What all results of this room have in common: a rich display in notebooks, asked for through the socket."""

from __future__ import annotations

from typing import Any

from nbmodule.base.sockets import Displayed, socket


class Shown(Displayed):
    """Has a rich display."""

    def show(self) -> None:
        """Put it on the screen, also outside of notebooks."""
        socket("show")(self)

    def plot(self, file: object = None) -> Any:
        """Draw it as a matplotlib figure, and write that to an `.svg`, `.png` or `.pdf` file if one is named; see `nb.plot`."""
        return socket("plot")(self, file)
