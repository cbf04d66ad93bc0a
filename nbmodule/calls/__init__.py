"""Records of calls: tracking, comparison with expected returns, the first non-finite value,
recorders.
"""

from nbmodule.base.statistics import Statistics
from nbmodule.calls.call import Call
from nbmodule.calls.calls import Calls
from nbmodule.calls.compare import Comparison, compare
from nbmodule.calls.differences import Difference, check, diff
from nbmodule.calls.kept import load_calls
from nbmodule.calls.memory import Memory, memory
from nbmodule.calls.nonfinite import NonFinite, first_nonfinite
from nbmodule.calls.profile import Profile, profile
from nbmodule.calls.recorder import Recorder
from nbmodule.calls.track import tap, track

__all__ = [
    "Call",
    "Calls",
    "Comparison",
    "Difference",
    "Memory",
    "NonFinite",
    "Profile",
    "Recorder",
    "Statistics",
    "check",
    "compare",
    "diff",
    "first_nonfinite",
    "load_calls",
    "memory",
    "profile",
    "tap",
    "track",
]
