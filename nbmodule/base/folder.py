"""Where this package lies, so that its own lines are told apart from a user's."""

from __future__ import annotations

import os

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
LAYERS = os.path.join(PACKAGE, "nn") + os.sep
