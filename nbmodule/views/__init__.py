"""Displays: records of models, variables, calls and runs as text, static HTML and live views.

`nbmodule.base.sockets` names the functions that lower packages call.
"""

# They register their records.
from nbmodule.views.builders import modules, tables, tracked  # noqa: F401
from nbmodule.views.builders.pytrees import findings, record_for, register_record, view_for
from nbmodule.views.display.show import (
    display_all,
    html_of,
    mimebundle,
    printed,
    show,
    show_in_place,
)

# They register their objects.
from nbmodule.views.panels import graph_view, intervention_views  # noqa: F401
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
    "printed",
    "record_for",
    "register_record",
    "show",
    "show_in_place",
    "view_for",
]
