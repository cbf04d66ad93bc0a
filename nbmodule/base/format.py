"""Numbers, names and amounts of memory as short text, spelled as in `views/frontend/format.js`."""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from nbmodule.base.kinds import Shaped
from nbmodule.errors import ArgumentError, printable, printable_lines

Method = TypeVar("Method", bound=Callable[[Any], str])
LONGEST_NAME = 200
_OFF_HALF = 1 + 1e-13
"""Python rounds a half to the even digit, browsers away from zero: both are kept off the half."""


def format_count(n: int) -> str:
    """Write a count with its thousands apart.

    Example:
        >>> format_count(1234567)
        '1,234,567'
    """
    return f"{n:,}"


def format_bytes(n: int) -> str:
    """Write a size in bytes, KiB, MiB, GiB or TiB with three significant digits.

    Example:
        >>> format_bytes(576), format_bytes(38440)
        ('576 B', '37.5 KiB')
    """
    if n < 1024:
        return f"{n} B"
    units = ["KiB", "MiB", "GiB", "TiB"]
    value = n / 1024
    while value >= 999.5 and len(units) > 1:
        value /= 1024
        del units[0]
    unit = units[0]
    return f"{value * _OFF_HALF:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def format_number(x: float, digits: int = 4) -> str:
    """Write a number with at most `digits` significant digits, never with trailing zeros.

    Example:
        >>> format_number(0.123456), format_number(3.2e-7), format_number(float("nan"))
        ('0.1235', '3.2e-7', 'NaN')
    """
    x = float(x)
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    if x == 0:
        return "0"
    x *= _OFF_HALF if abs(x) < 1e300 else 1.0
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -4 <= power < 6:
        places = max(digits - 1 - power, 0)
        text = f"{x:.{places}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{power}"


def format_percent(share: float) -> str:
    """Write a share in percent; only the whole is 100 %.

    Example:
        >>> format_percent(0.0825), format_percent(1), format_percent(6143999 / 6144000)
        ('8.25 %', '100 %', '99.9 %')
    """
    return f"{format_number(min(100 * share, 99.9 if share < 1 else 100.0), 3)} %"


def format_seconds(s: float) -> str:
    """Write a duration in µs, ms, s or minutes.

    Example:
        >>> format_seconds(0.0081), format_seconds(2e-5), format_seconds(125)
        ('8.1 ms', '20 µs', '2 min 5 s')
    """
    if s >= 59.95:  # which three digits write as 60
        minutes, remaining = divmod(math.floor(s + 0.5), 60)
        return f"{minutes} min {remaining} s"
    if s >= 0.9995:
        return f"{format_number(s, 3)} s"
    if s >= 0.9995e-3:
        return f"{format_number(s * 1e3, 3)} ms"
    return f"{format_number(s * 1e6, 3)} µs"


def format_array(shape: Iterable[int | str] | None, dtype: str) -> str:
    """Write the type of an array.

    Example:
        >>> format_array((64, 3), "float32")
        'float32[64, 3]'
    """
    if shape is None:
        return dtype
    return f"{dtype}[{', '.join(map(str, shape))}]"


def describe_shape(x: Shaped | complex) -> str:
    """Write the type of an array, a variable, a description of one, or a Python number.

    Example:
        >>> describe_shape(np.zeros((64, 3), np.float32))
        'float32[64, 3]'
        >>> describe_shape(2.0)
        'float'
    """
    shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
    if x is None:
        return "None"
    return type(x).__name__ if shape is None else _array_text(tuple(shape), dtype)


@functools.lru_cache(maxsize=1024, typed=True)
def _array_text(shape: tuple[Any, ...], dtype: object) -> str:  # a trace asks thousands of times
    return format_array(shape, str(dtype))


def plain(text: object, longest: int = LONGEST_NAME) -> str:
    r"""Make any text safe to lay out: control and direction marks become visible escapes, long text
    is cut in the middle.

    Example:
        >>> plain("a" + chr(10) + "b")
        'a\\nb'
    """
    return printable(cut_middle(str(text), longest))


def printable_repr(method: Method) -> Method:
    r"""Decorate a `__repr__` or `__str__` that holds names which anybody chose: each of its lines
    is made printable.

    Example:
        >>> printable_repr(lambda name: f"Net({name})")(chr(27))
        'Net(\\x1b)'
    """

    @functools.wraps(method)
    def safely(self: Any) -> str:
        return printable_lines(method(self))

    return safely  # type: ignore[return-value] - of the same signature


def cut_middle(text: str, width: int) -> str:
    """Cut a name in its middle, where it says least.

    Example:
        >>> cut_middle("encoder.layers.0.attention.weight", 16)
        'encoder…n.weight'
    """
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail = width // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


@functools.lru_cache(8192)
def width_of(text: str) -> int:
    """Count the columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def count_noun(n: int, noun: str) -> str:
    """Write a count with its noun.

    Example:
        >>> count_noun(1, "variable"), count_noun(1200, "variable")
        ('1 variable', '1,200 variables')
    """
    plural = re.sub("(?<=[rt])y$", "ie", noun).replace("leaf", "leave") + "s"
    return f"{n:,} {noun if n == 1 else plural}"


def ordinal(n: int) -> str:
    """Write a place in an order.

    Example:
        >>> ordinal(2), ordinal(11), ordinal(23)
        ('2nd', '11th', '23rd')
    """
    if n % 100 in (11, 12, 13):
        return f"{n}th"
    return f"{n}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th') }"


def spark(bins: tuple[int, ...] | list[float], width: int = 8) -> str:
    """Draw counts as a row of blocks.

    Example:
        >>> spark((0, 1, 5, 9, 5, 1, 0, 0))
        '▁▂▅█▅▂▁▁'
    """
    if not bins:
        return ""
    merged = merge_bins(bins, width)
    top = max(merged) or 1
    return "".join("▁▂▃▄▅▆▇█"[min(7, round(7 * b / top))] for b in merged)


def merge_bins(bins: tuple[int, ...] | list[float], width: int) -> list[float]:
    """Add neighboring counts together until at most `width` are left."""
    step = -(-len(bins) // width)
    return [sum(bins[i : i + step]) for i in range(0, len(bins), step)]


_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS |= {f"{_letter}B": 1000**_power, f"{_letter}IB": 1024**_power}


def bytes_of(text: str | int | float) -> int:
    """Read an amount of memory.

    Example:
        >>> from nbmodule.base.format import bytes_of
        >>> bytes_of("256MB"), bytes_of("1.5 GiB"), bytes_of(1000)
        (256000000, 1610612736, 1000)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match[2].upper() not in _UNITS or not float(match[1]):
        raise ArgumentError(
            f"budget must be a positive number of bytes or text such as '256MB', got {text!r}."
        )
    return int(float(match[1]) * _UNITS[match[2].upper()])


# -- names of logged numbers: what was measured, on which data, and whether more is better --
_ROLES = {
    "train": ("train", "training", "trn"),
    "val": ("val", "valid", "validation", "dev", "eval"),
    "test": ("test", "testing"),
}
_ROLE_OF = {word: role for role, words in _ROLES.items() for word in words}
_CUT = re.compile(r"[\s_./:-]+")
_HIGHER = re.compile(
    r"acc(uracy)?|auc|f1|score|reward|return|precision|recall|bleu|psnr|ssim|iou|r2|top\d+", re.I
)


def group_of(name: str) -> tuple[str, str]:
    """Split the name of a series into what is measured and on which data.

    Example:
        >>> group_of("val_loss"), group_of("loss"), group_of("train/accuracy")
        (('loss', 'val'), ('loss', 'train'), ('accuracy', 'train'))
    """
    words = _CUT.split(name.strip())
    for at in (0, -1):
        role = _ROLE_OF.get(words[at].lower())
        if role and len(words) > 1:
            remove = str.removeprefix if at == 0 else str.removesuffix
            return remove(name.strip(), words[at]).strip(" _./:-"), role
    return name, "train"


def is_better_when_higher(name: str) -> bool:
    """Tell whether a series counts something good, by its name."""
    return any(_HIGHER.fullmatch(word) for word in _CUT.split(group_of(name)[0]))
