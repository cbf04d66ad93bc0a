"""Groups of variables with options of their own, chosen by globs on their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nbmodule.base.paths import hint, match
from nbmodule.core.shape.older import in_older_form
from nbmodule.core.shape.structure import static_key
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.optim.part import Chain, text


class VariableGroup:
    """The variables that one pattern chooses.

    Args:
        pattern: A glob on dotted names (`blocks.*.weight`) or chains (`blocks/*/w`).
        frozen: Whether they are left alone.
        has_rate: Whether they have a learning rate of their own.
        options: Options of the rule that differ from the optimizer's.
    """

    def __init__(self, pattern: str, frozen: bool, has_rate: bool, options: Mapping[str, Any]) -> None:
        self.pattern, self.frozen, self.has_rate, self.options = pattern, frozen, has_rate, dict(options)

    def __repr__(self) -> str:
        return f"Group({self.pattern!r})"


class Groups:
    """All groups of an optimizer; the first one whose pattern fits a variable has it."""

    def __init__(self, groups: Iterable[VariableGroup] = ()) -> None:
        self.all = tuple(groups)

    @property
    def _key(self) -> Any:
        return static_key([[group.pattern, group.frozen, group.has_rate, group.options] for group in self.all])

    def __eq__(self, other: object) -> bool:  # a compiled step serves another optimizer with the same groups
        return isinstance(other, Groups) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def assign(self, chains: tuple[Chain, ...], names: Mapping[Chain, str], whose: str) -> tuple[int, ...]:
        """The number of each variable's group, counted from 1; 0 for those that are in none.

        Raises:
            PathError: a pattern fits no variable at all.
        """
        spelled = [(text(chain), ".".join(chain), in_older_form(text(chain)), names.get(chain, "")) for chain in chains]
        fits = [[any(match(group.pattern, name) for name in known) for group in self.all] for known in spelled]
        for group, column in zip(self.all, zip(*fits)):
            if not any(column):
                known = [name or dotted for _, dotted, _, name in spelled]
                raise PathError(
                    f'{whose}: the pattern "{group.pattern}" of groups= fits no variable{hint(group.pattern, known)} Nothing was '
                    "changed. Patterns are globs on names such as blocks.0.weight, or on chains such as blocks/v0/w."
                )
        return tuple(row.index(True) + 1 if True in row else 0 for row in fits)


def make_groups(given: object, options: Iterable[str]) -> tuple[Groups, list[Any]]:
    """Groups as the user gives them, `{pattern: {option: value}}`, and the learning rates among the options.

    Args:
        given: The keyword argument.
        options: Names of the rule's options.
    """
    if given is None:
        return Groups(), []
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(
            f"groups= takes a dict from patterns to options, as in {{'blocks.*': {{'lr': 1e-4}}}}; found {type(given).__name__}."
        )
    groups, rates = [], []
    known = ["lr", "frozen", *options]
    for pattern, chosen in given.items():
        if not isinstance(pattern, str) or not isinstance(chosen, Mapping):
            raise ArgumentTypeError(
                f"groups= takes a dict from patterns to dicts of options; found {pattern!r}: {chosen!r}."
            )
        for name in chosen:
            if name not in known:
                raise ArgumentError(
                    f'groups[{pattern!r}] has no option "{name}"{hint(str(name), known)} They are {", ".join(known)}.'
                )
        frozen = chosen.get("frozen", False)
        if not isinstance(frozen, bool):
            raise ArgumentTypeError(f"groups[{pattern!r}]: frozen is True or False; found {frozen!r}.")
        own = {name: value for name, value in chosen.items() if name not in ("lr", "frozen")}
        groups.append(VariableGroup(pattern, bool(frozen), "lr" in chosen, own))
        rates.append(chosen.get("lr"))
    return Groups(groups), rates
