"""Groups of variables with options that differ, chosen by globs on their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nbmodule.base.paths import hint, match
from nbmodule.core.structure.linked import in_older_form
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.optim.pairing import Chain, text
from nbmodule.optim.rules import check_option


class VariableGroup(NamedTuple):
    """The variables that one pattern chooses.

    Args:
        pattern: A glob on dotted names (`blocks.*.weight`) or chains (`blocks/*/w`).
        frozen: Whether they are left alone.
        has_rate: Whether they have a learning rate of their own.
        options: Options of the rule that differ from the optimizer's.
    """

    pattern: str
    frozen: bool
    has_rate: bool
    options: dict[str, Any]


def group_numbers(
    groups: Sequence[VariableGroup],
    chains: tuple[Chain, ...],
    names: Mapping[Chain, str],
    title: str,
) -> tuple[int, ...]:
    """Return the number of each variable's group, counted from 1; 0 for those in none.

    The first group whose pattern fits a variable has it.

    Raises:
        PathError: a pattern fits no variable at all.
    """
    spellings = [
        (text(chain), ".".join(chain), in_older_form(text(chain)), names.get(chain, ""))
        for chain in chains
    ]
    fits = [
        [any(match(group.pattern, name) for name in spelling) for group in groups]
        for spelling in spellings
    ]
    for group, column in zip(groups, zip(*fits)):
        if not any(column):
            spelled = [name or dotted for _, dotted, _, name in spellings]
            raise PathError(
                f'{title}: the pattern "{group.pattern}" of groups= fits no '
                f"variable{hint(group.pattern, spelled)} Patterns are globs on names such as "
                "blocks.0.weight, or on chains such as blocks/v0/w."
            )
    return tuple(row.index(True) + 1 if True in row else 0 for row in fits)


def parse_groups(
    argument: object, row: str, options: Mapping[str, Any]
) -> tuple[tuple[VariableGroup, ...], list[Any]]:
    """Return groups from `{pattern: {option: value}}`, and their learning rates.

    Args:
        argument: The keyword argument of the user.
        row: Name of the rule.
        options: Options of the rule.
    """
    if not isinstance(argument, Mapping):
        raise ArgumentTypeError(
            "groups= takes a dict from patterns to options, as in {'blocks.*': {'lr': 1e-4}}, "
            f"got {type(argument).__name__}."
        )
    groups, rates = [], []
    names = ["lr", "frozen", *options]
    for pattern, chosen in argument.items():
        if not isinstance(pattern, str) or not isinstance(chosen, Mapping):
            raise ArgumentTypeError(
                f"groups= takes a dict from patterns to dicts of options, got {pattern!r}: "
                f"{chosen!r}."
            )
        for name in chosen.keys() - set(names):
            raise ArgumentError(
                f'groups[{pattern!r}] has no option "{name}"{hint(str(name), names)} '
                f"They are {', '.join(names)}."
            )
        frozen = chosen.get("frozen", False)
        if not isinstance(frozen, bool):
            raise ArgumentTypeError(
                f"groups[{pattern!r}]: frozen must be True or False, got {frozen!r}."
            )
        changed = {
            name: check_option(row, name, value)
            for name, value in chosen.items()
            if name not in ("lr", "frozen")
        }
        groups.append(VariableGroup(pattern, frozen, "lr" in chosen, changed))
        rates.append(chosen.get("lr"))
    return tuple(groups), rates
