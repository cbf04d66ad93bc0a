"""`nb.edit`: edit a model; each edit is checked by shapes and can be undone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jax

from nbmodule.base.format import printable_repr
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.base.paths import entry_of
from nbmodule.core.call.module import CoreModule
from nbmodule.core.compiled.jit import eval_shape
from nbmodule.core.recording.tracker import describe, untracked
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.frame import write_all
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, ShapeError
from nbmodule.interventions.targets import Target, names_of, targets

SCALARS = (bool, int, float, str, type(None))


def edit(model: object, *args: object, **kwargs: object) -> Edits:
    """Edit a model: replace, insert, remove, share, freeze or reset modules, set an attribute; and
    undo.

    With an example input each edit is first checked by shapes (`nb.eval_shape`); an edit that would
    fail is refused, and nothing has changed.

    Args:
        model: The module.
        *args: Example arguments, arrays or `jax.ShapeDtypeStruct`; without them an edit is not
            checked.
        **kwargs: Example keyword arguments.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))
        >>> edits = nb.edit(model, jnp.ones((1, 3)))
        >>> edits.replace("1", nb.Tanh()).insert("2", nb.LayerNorm(4))
        model[1] = nb.Tanh()
        model.insert(2, nb.LayerNorm((4,), eps=1e-05, affine=True))
        >>> edits.undo().undo()
        no edits
        >>> type(model[1]).__name__, len(model)
        ('ReLU', 3)
    """
    if not isinstance(model, CoreModule):
        raise ArgumentTypeError(
            f"nb.edit takes an nb.Module, got {type(model).__name__}. Convert "
            f"it first (nb.from_flax, nb.from_torch, ...)."
        )
    return Edits(model, args, kwargs)


@dataclass
class MadeEdit:
    """One edit: the line of code with the same effect, and a function that undoes it."""

    code: str
    back: Callable[[], None]


class Edits:
    """The edits of a model, made by `nb.edit`; each method returns the object itself.

    Attributes:
        model: The edited model.
        made: The edits, in order.
    """

    def __init__(self, model: CoreModule, args: Args, kwargs: Kwargs) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.made: list[MadeEdit] = []

    # -- edits --
    def replace(self, path: str, module: object, code: str | None = None) -> Edits:
        """Replace the module at `path` by a module or a function of one argument; `code` is its
        text in `Edits.code`.
        """
        steps = self._steps(path)
        old = _follow(self.model, steps)
        return self._do(
            f"{_spelled(steps)} = {code or _called(module)}",
            lambda: _put(self.model, steps, module),
            lambda: _put(self.model, steps, old),
        )

    def insert(self, path: str, module: object, code: str | None = None) -> Edits:
        """Insert a module before the one at `path`, in a list or an `nb.Sequential`; `path` may be
        one past the last.

        `code` is its text in `Edits.code`.
        """
        items, number, list_code = self._in_list(path, past=True)
        return self._do(
            f"{list_code}.insert({number}, {code or _called(module)})",
            lambda: items.insert(number, module),
            lambda: items.pop(number),
        )

    def remove(self, path: str) -> Edits:
        """Remove the module at `path` from its list or `nb.Sequential`."""
        items, number, code = self._in_list(path)
        old = items[number]
        return self._do(
            f"del {code}[{number}]", lambda: items.pop(number), lambda: items.insert(number, old)
        )

    def share(self, path: str, other: str) -> Edits:
        """Use the module at `other` also at `path`: both share their variables."""
        source = self._steps(other)
        return self.replace(path, _follow(self.model, source), _spelled(source))

    def freeze(self, path: str = "") -> Edits:
        """Freeze the parameters of the module at `path`: they get no gradient."""
        return self._require(path, False)

    def unfreeze(self, path: str = "") -> Edits:
        """Train the parameters of the module at `path` again."""
        return self._require(path, True)

    def reset(self, path: str = "", make: Callable[[], Any] | None = None) -> Edits:
        """Initialize the variables of the module at `path` again.

        Args:
            path: The module; empty for the whole model.
            make: Returns a module of the same structure with the new values. By default each layer
                is constructed again from its attributes, with its default initializers.
        """
        target = self._spot(path)
        pairs = _fresh(target, make)
        old = [(variable, variable.value) for variable, _ in pairs]
        more = "" if make is None else ", make=..."
        code = f"edits.reset({path!r}{more})"
        return self._do(code, lambda: _write(pairs), lambda: _write(old))

    def set(self, path: str, name: str, value: object) -> Edits:
        """Set a number, text or flag that a module has as an attribute: a rate, an `eps`, a slope.

        Raises:
            ArgumentError: there is no such attribute.
            ArgumentTypeError: the value is of another type.
        """
        module, code = self._spot(path).module, self._code(path)
        known = scalars_of(module)
        if name not in known:
            raise ArgumentError(
                f'"{path}" ({type(module).__name__}) has no number, text or flag {name!r} that '
                f"can be set; it has {', '.join(known) or 'none'}."
            )
        old = known[name]
        if not _is_like(value, old):
            raise ArgumentTypeError(f'"{path}".{name} is {old!r}; {value!r} is of another type.')
        return self._do(
            f"{code}.{name} = {value!r}",
            lambda: setattr(module, name, value),
            lambda: setattr(module, name, old),
        )

    def undo(self) -> Edits:
        """Undo the last edit.

        Raises:
            ArgumentError: there is none.
        """
        if not self.made:
            raise ArgumentError("there is no edit to undo.")
        self.made[-1].back()
        self.made.pop()
        return self

    @property
    def code(self) -> str:
        """Python code with the same effect."""
        return "\n".join(item.code for item in self.made)

    @printable_repr
    def __repr__(self) -> str:
        return self.code or "no edits"

    # -- implementation --
    def _do(self, code: str, act: Callable[[], Any], back: Callable[[], Any]) -> Edits:
        """Make an edit if its shapes fit, else nothing."""
        before = self._shapes()
        act()
        with ExitStack() as undone:
            undone.callback(back)
            try:
                after = self._shapes()
            except Exception as error:
                raise ShapeError(
                    f"cannot do `{code}`: with it the model fails on {describe(self.args)}: "
                    f"{first_line(error)}."
                ) from error
            if after != before:
                raise ShapeError(
                    f"cannot do `{code}`: the model would return {after} in place of {before}."
                )
            undone.pop_all()
        self.made.append(MadeEdit(code, back))
        return self

    def _shapes(self) -> str | None:
        if not self.args and not self.kwargs:
            return None
        with untracked():
            return describe(eval_shape(self.model, *self.args, **self.kwargs))

    def _spot(self, path: str) -> Target:
        if not isinstance(path, str):
            raise ArgumentTypeError(
                f"a submodule must be named by its path, got {type(path).__name__}."
            )
        result = targets(self.model, path)
        if len(result) != 1 or result[0].tap is not None or result[0].receiver is not None:
            raise PathError(f'"{path}" is not one submodule of {type(self.model).__name__}.')
        return result[0]

    def _code(self, path: str) -> str:
        return _spelled(self._steps(path)) if path else "model"

    def _steps(self, path: str) -> tuple[Any, ...]:
        if path == "":
            raise PathError("the whole model has no parent in which it could be replaced.")
        return plan_of(self.model).modules[self._spot(path).module].path

    def _in_list(self, path: str, past: bool = False) -> tuple[Any, int, str]:
        """Return the list or `nb.Sequential` that holds a module, its index there, and the list as
        code.
        """
        prefix, dot, last = path.rpartition(".")
        neighbor = f"{prefix}{dot}{int(last) - 1}" if last.isdigit() else path
        named = names_of(self.model)
        is_past = past and path not in named and neighbor in named
        steps = self._steps(neighbor if is_past else path)
        number, holder = getattr(steps[-1], "idx", None), _follow(self.model, steps[:-1])
        if number is None or not (hasattr(holder, "insert") and hasattr(holder, "pop")):
            raise ArgumentError(
                f'"{path}" is not in a list, so a module cannot be inserted before it or removed. '
                "Replace it."
            )
        return holder, number + is_past, _spelled(steps[:-1])

    def _require(self, path: str, flag: bool) -> Edits:
        module, code = self._spot(path).module, self._code(path)
        old = [(variable, variable.requires_grad) for variable in module.parameters()]

        def back() -> None:
            for variable, was in old:
                variable.requires_grad = was

        return self._do(f"{code}.requires_grad_({flag})", lambda: module.requires_grad_(flag), back)


def scalars_of(module: object) -> dict[str, Any]:
    """Return the attributes of a module that `Edits.set` can change: numbers, texts and flags.

    Example:
        >>> scalars_of(nb.Dropout(0.5))
        {'rate': 0.5}
    """
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, SCALARS) and not name.startswith("_")
    }


def _put(model: object, steps: tuple[Any, ...], value: object) -> None:
    """Assign a module at a path of a model."""
    holder, step = _follow(model, steps[:-1]), steps[-1]
    if not callable(value):
        raise ArgumentTypeError(f"expected a module or a function, got {type(value).__name__}.")
    if hasattr(step, "name"):
        setattr(holder, step.name, value)
    elif isinstance(holder, tuple):
        raise ArgumentError(f"{_spelled(steps)} is in a tuple, which cannot change.")
    else:
        holder[entry_of(step)] = value


def _follow(value: Any, steps: tuple[Any, ...]) -> Any:
    for step in steps:
        value = getattr(value, step.name) if hasattr(step, "name") else value[entry_of(step)]
    return value


def _spelled(steps: tuple[Any, ...]) -> str:
    """Return a path as code."""
    return "model" + jax.tree_util.keystr(steps)


def _called(module: object) -> str:
    """Return a module as the call that constructs it, if its text is one line."""
    if is_module(module):
        text = repr(module).split("\n")
        prefix = "nb." if type(module).__module__.startswith("nbmodule.nn.") else ""
        return f"{prefix}{text[0] if len(text) == 1 else f'{type(module).__name__}(...)'}"
    return getattr(module, "__name__", type(module).__name__)


def _is_like(value: object, old: object) -> bool:
    if old is None or value is None:
        return isinstance(value, SCALARS)
    if isinstance(old, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(old, bool)
    return isinstance(value, (int, float)) if isinstance(old, float) else type(value) is type(old)


def first_line(error: Exception) -> str:
    """Return the class of an error and the first line of its message, to be part of a sentence."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].rstrip('.')}" if text else type(error).__name__


def _write(pairs: list[tuple[Variable, Any]]) -> None:
    write_all(
        [variable for variable, _ in pairs], [variable.admitted(value) for variable, value in pairs]
    )


def _fresh(target: Target, make: Callable[[], Any] | None) -> list[tuple[Variable, Any]]:
    """Return the variables of a module with new initial values."""
    path = target.name
    if make is not None:
        return _paired(path, target.module, make(), recursive=True)
    owners = [m for m in target.module.modules() if any(m.named_tensors(recursive=False))]
    if not owners:
        raise ArgumentError(f'"{path}" has no variables to initialize again.')
    made = ((module, _made_anew(path, module)) for module in owners)
    return [pair for each in made for pair in _paired(path, *each, recursive=False)]


def _paired(
    path: str, module: CoreModule, fresh: Any, *, recursive: bool
) -> list[tuple[Variable, Any]]:
    owned, new = (dict(item.named_tensors(recursive=recursive)) for item in (module, fresh))
    shapes = {name: (variable.shape, variable.dtype) for name, variable in owned.items()}
    if shapes != {name: (variable.shape, variable.dtype) for name, variable in new.items()}:
        raise ShapeError(
            f'"{path}": the new module has other variables than {type(module).__name__}. '
        )
    return [(variable, new[name].value) for name, variable in owned.items()]


def _made_anew(path: str, module: object) -> Any:
    """Construct a module again from the attributes that are arguments of its constructor."""
    cls, owned = type(module), vars(module)
    options = {
        name: owned[name]
        for name in inspect.signature(cls.__init__).parameters
        if name in owned and not isinstance(owned[name], Variable) and not is_module(owned[name])
    }
    try:
        return cls(**options)
    except Exception as error:
        raise ArgumentError(
            f'"{path}": {cls.__name__} cannot be made again from its attributes '
            f"({first_line(error)}). Give make=, a function that makes a new one."
        ) from error


__all__ = ["Edits", "edit"]
