"""What the name of a logged number tells: what was measured, on which data, and whether more is
better.
"""

from __future__ import annotations

import re

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
            remaining = (
                name.strip()[len(words[0]) :] if at == 0 else name.strip()[: -len(words[-1])]
            )
            return remaining.strip(" _./:-"), role
    return name, "train"


def is_better_when_higher(name: str) -> bool:
    """Tell whether a series counts something good, by its name."""
    return any(_HIGHER.fullmatch(word) for word in _CUT.split(group_of(name)[0]))
