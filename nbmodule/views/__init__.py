"""Displays: records of models, variables, calls and runs as text, static HTML and live views.

Importing this package plugs it into the sockets `display` and `show` of `nbmodule.base`.
"""

from nbmodule.base.sockets import plug
from nbmodule.views.builders import (  # noqa: F401 - they register their records
    comparisons,
    modules,
    tables,
    tracked,
)
from nbmodule.views.builders.pictured import view_for
from nbmodule.views.builders.registry import findings, record_for, register_record
from nbmodule.views.display.show import (
    display_all,
    html_of,
    mimebundle,
    printed,
    show,
    show_in_place,
)
from nbmodule.views.panels import (  # noqa: F401 - they register what they draw
    graph_pairs,
    graph_view,
    intervention_actions,
    profile_view,
)
from nbmodule.views.panels.figures import plot
from nbmodule.views.panels.inspection import Inspection, inspect
from nbmodule.views.panels.loss_curve import LossCurve

__all__ = [
    "Inspection",
    "LossCurve",
    "display_all",
    "findings",
    "html_of",
    "inspect",
    "mimebundle",
    "plot",
    "plug_in",
    "record_for",
    "register_record",
    "show",
    "view_for",
]


def plug_in() -> None:
    """Give the layers that views build on their rich display."""
    plug("display", mimebundle)
    plug("show", show)
    plug("show_in_place", show_in_place)
    plug("text", printed)
    plug("plot", plot)
    plug("page", graph_view.graph_page)


plug_in()
