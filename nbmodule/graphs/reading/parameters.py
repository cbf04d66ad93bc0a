"""Say in a few characters what a primitive was told besides its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LIMIT = 60
_SAY_NOTHING = (
    "sharding out_sharding weak_type precision preferred_element_type accuracy out_dtype mode "
    "fill_value dimension_numbers "
    "indices_are_sorted unique_indices is_stable update_jaxpr update_consts jaxpr computation "
    "in_tree static_args "
    "np_printoptions logging_record has_placeholders memory_space spec impl feature_group_count "
    "batch_group_count "
    "exact is_linear callback callback_func devices srcs copy_semantics reduced unreduced "
    "axis_index_groups"
)
HIDDEN = frozenset(_SAY_NOTHING.split())


def describe_parameters(operation: str, params: Mapping[str, Any]) -> str:
    """Short text of a primitive's parameters, empty where they say nothing that the shapes do not.

    >>> describe_parameters("reduce_sum", {"axes": (1,), "out_sharding": None})
    'axes 1'
    >>> describe_parameters("integer_pow", {"y": 3})
    '^3'
    """
    rule = RULES.get(operation)
    try:
        text = rule(params) if rule else _general(params)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        text = ""  # parameters of another release of JAX
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"


def _general(params: Mapping[str, Any]) -> str:
    words = []
    for name, value in params.items():
        if name in HIDDEN or value is None or value is False or value == ():
            continue
        parts = value if isinstance(value, tuple) else (value,)
        if all(isinstance(x, (bool, int, float, str)) for x in parts):
            words.append(name if value is True else f"{name} {_plain(value)}")
    return ", ".join(words)


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _dot_general(params: Mapping[str, Any]) -> str:
    (left, right), (batch, _) = params["dimension_numbers"]
    text = f"axes {_plain(tuple(left))}·{_plain(tuple(right))}"
    return f"{text}, batch {_plain(tuple(batch))}" if batch else text


def _slice(params: Mapping[str, Any]) -> str:
    strides = params.get("strides") or (1,) * len(params["start_indices"])
    parts = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return ", ".join(f"{a}:{b}" + (f":{s}" if s != 1 else "") for a, b, s in parts)


def _convolution(params: Mapping[str, Any]) -> str:
    words = []
    if set(params["window_strides"]) != {1}:
        words.append(f"stride {_plain(tuple(params['window_strides']))}")
    if any(pair != (0, 0) for pair in params["padding"]):
        words.append("pad " + " ".join(f"{low}+{high}" for low, high in params["padding"]))
    if params["feature_group_count"] != 1:
        words.append(f"groups {params['feature_group_count']}")
    return ", ".join(words)


RULES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "convert_element_type": lambda p: f"to {p['new_dtype'].name}",
    "integer_pow": lambda p: f"^{p['y']}",
    "transpose": lambda p: _plain(tuple(p["permutation"])),
    "reshape": lambda p: f"[{', '.join(map(str, p['new_sizes']))}]",
    "broadcast_in_dim": lambda p: f"[{', '.join(map(str, p['shape']))}]",
    "slice": _slice,
    "pad": lambda p: " ".join(
        f"{low}+{high}" + (f"+{mid}" if mid else "") for low, high, mid in p["padding_config"]
    ),
}
