"""Any transformation of optax as an optimizer: its state lies in variables, named by their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.kinds import DeviceLike, RateLike
from nbmodule.base.paths import link
from nbmodule.base.promotion import mixed_dtypes
from nbmodule.base.trees import flat
from nbmodule.core.variables.frame import now
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    ShapeStructureError,
    StructureError,
    TraceError,
)
from nbmodule.optim import attributes
from nbmodule.optim.attributes import SLOTS
from nbmodule.optim.pairing import (
    Chain,
    Pairs,
    as_container,
    is_floating,
    parameters_of,
    text,
    values_of,
)
from nbmodule.optim.rate import as_number, as_scalar
from nbmodule.optim.slots import SlotOptimizer, StateArray, StateNames, Work
from nbmodule.tree.compare import structure_difference

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

# variables that are compiled as one program outside of `nb.jit`; more would take many seconds
MOST_AT_ONCE = 200
SLOT = "optax"  # the name of the transformation's own state in `state`


class Optax(SlotOptimizer):
    """Any transformation of optax, with its state kept in the optimizer.

    The transformation sees variables and gradients as Containers like `model.v`, integers left out,
    so masks and labels may be made with `jax.tree.map(..., model.v)`. Frozen parameters are in
    them, with gradients of zero, and stay as they are; so does their state.

    The learning rate is part of the transformation. Made with `optax.inject_hyperparams` it can be
    read and changed as `lr`, once there is state. Outside of `nb.jit` a step over more than 200
    variables runs operation by operation, since compiling it as one program takes long;
    `trace_on_next_step=True` does that once.

    Args:
        transformation: Anything with `init` and `update`, such as `optax.adamw(1e-3)` or an
            `optax.chain`.
        inplace: See `Optimizer`.
        stop_gradients: See `Optimizer`.
        trace_on_next_step: See `Optimizer`.
        device: See `Optimizer`.

    Example:
        >>> import optax
        >>> optimizer = nb.Optax(optax.chain(optax.clip(1.0), optax.sgd(0.5)))
        >>> optimizer.step({"w": jnp.zeros(2)}, {"w": jnp.array([0.5, 9.0])})["w"]
        Array([-0.25, -0.5 ], dtype=float32)
    """

    def __init__(
        self,
        transformation: object,
        *,
        inplace: bool | None = None,
        stop_gradients: bool = True,
        trace_on_next_step: bool = False,
        device: DeviceLike | None = None,
    ) -> None:
        methods = [getattr(transformation, name, None) for name in ("init", "update")]
        if not all(map(callable, methods)):
            raise ArgumentTypeError(
                "nb.Optax takes a transformation of optax, such as optax.adam(1e-3); "
                f"found {type(transformation).__name__}."
            )
        super().__init__(0.0, inplace, stop_gradients, trace_on_next_step, device)
        vars(self).update(_transformation=_Opaque(transformation), _rates=(), _form=None)
        vars(self)[SLOTS] = StateNames(), ()

    # -- learning rate --
    @property
    def lr(self) -> Any:
        """The learning rate, where the transformation was made with `optax.inject_hyperparams` and
        has state; else None.
        """
        variable = self._injected_rate()
        return None if variable is None else variable.value

    @lr.setter
    def lr(self, lr: RateLike) -> None:
        variable = self._injected_rate()
        if variable is not None:
            rate = as_scalar(lr if isinstance(lr, Tracer) else as_number(lr))
            variable.value = rate.astype(variable.dtype)
        elif not self._state():
            raise ArgumentError(
                "Optax has no learning rate before it has state. Nothing was changed. "
                "Take a step, or call `init(model)`, first."
            )
        else:
            raise ArgumentError(
                "the learning rate is inside the transformation and cannot be changed. Nothing was "
                "changed. Make it with optax.inject_hyperparams, as in "
                "nb.Optax(optax.inject_hyperparams(optax.adam)(learning_rate=1e-3)), "
                "or give optax a schedule."
            )

    @property
    def _lr(self) -> Any:
        return self.lr

    @_lr.setter
    def _lr(self, lr: RateLike) -> None:
        self.lr = lr

    @property
    def current_lr(self) -> Any:
        """The learning rate that the next step will use; see `lr`."""
        return self.lr

    def _injected_rate(self) -> Variable | None:
        name = ("hyperparams", "learning_rate")
        return next((x for chain, x in self._state().items() if chain[-2:] == name), None)

    # -- steps --
    def step(
        self,
        v: Mapping[str, Any] | None = None,
        grads: object = None,
        ignore_missing: bool = False,
        **extra: object,
    ) -> Any:
        """Take a step and return the new variables; see `Optimizer.step`.

        Args:
            v: Variables.
            grads: Gradients.
            ignore_missing: Whether variables without a gradient stay as they are.
            **extra: Arguments of the transformation, for those that want more: `value=loss`, say.
        """
        return self._step_with(v, grads, ignore_missing, extra)

    def update(
        self, model: CoreModule, grads: Any = None, ignore_missing: bool = False, **extra: Any
    ) -> None:
        """Take a step and change the model; see `Optimizer.update`.

        Args:
            model: A module.
            grads: Gradients, a Container like `model.v`.
            ignore_missing: Whether variables without a gradient stay as they are.
            **extra: Arguments of the transformation, for those that want more: `value=loss`, say.
        """
        self._update_with(model, grads, ignore_missing, extra)

    # -- layout --
    def _initial(self, part: Pairs) -> tuple[list[StateArray], Any]:
        floating = [i for i, weight in enumerate(part.weights) if is_floating(weight)]
        chains = tuple(part.chains[i] for i in floating)
        state = self._initial_state(part, floating)
        form = _StateForm(state, chains)
        with jax.ensure_compile_time_eval():
            arrays = dict(zip(form.chains, form.arrays(state)))
        before: _StateForm | None = vars(self)["_form"]
        if before is None:
            self._check_loaded(arrays)
        if before is None or before.chains != form.chains:
            vars(self)["_form"] = form
            attributes.note_change(self)
        rows = zip(form.chains, form.owners, arrays.values())
        return [StateArray(*row) for row in rows], (floating, chains, form)

    def _initial_state(self, part: Pairs, floating: list[int]) -> Any:
        weights = [part.weights[i] for i in floating]
        chains = [part.chains[i] for i in floating]

        def init(leaves: list[Any]) -> Any:
            with mixed_dtypes():
                return self._optax.init(as_container(chains, leaves))

        with jax.ensure_compile_time_eval():
            if part.model is not None:  # the values from before any trace
                variables = parameters_of(part.model)[0]
                weights = [variables[i].settled() for i in floating]
            if not any(isinstance(weight, Tracer) for weight in weights):
                return init(weights)
            shapes = [jax.ShapeDtypeStruct(weight.shape, weight.dtype) for weight in weights]
            if _reads_values(init, shapes):
                raise TraceError(
                    "the first step of this transformation makes its state from the values of the "
                    "variables, and they are not known while tracing. Nothing was changed. Call "
                    "`init(v)` outside first, or use `update(model, grads)`."
                )
            return init([jnp.zeros(shape.shape, shape.dtype) for shape in shapes])

    def _check_loaded(self, arrays: Mapping[Chain, Any]) -> None:
        """Refuse state that was set before the first step and belongs to something else."""
        expected, loaded = (
            {text(chain): array for chain, array in state.items()}
            for state in (arrays, self._state())
        )
        difference = structure_difference(expected, loaded) if loaded else None
        if difference is not None:
            raise ShapeStructureError(
                "Optax cannot take a step: the state that it was given does not fit.\n"
                f"{difference}\nNothing was changed."
            )

    def _divide(self, part: Pairs, plan: Any, state: Mapping[Chain, Buffer]) -> list[Work]:
        floating, chains, form = plan
        variables = [state[chain] for chain in form.chains]
        idle = {chain for chain, grad in zip(part.chains, part.grads) if grad is None}
        written = [owner not in idle for owner in form.owners]
        transform = self._transform(form, chains)
        compiled = jax.jit(transform)

        def step(weights, grads, arrays, _rates, _counts, part):  # type: ignore[no-untyped-def]
            filled = [jnp.zeros_like(w) if g is None else g for w, g in zip(weights, grads)]
            extra = dict(part.extra or {})
            is_small = len(weights) <= MOST_AT_ONCE and not any(map(callable, extra.values()))
            run = compiled if now.frame is None and is_small else transform
            new, after = run(weights, filled, arrays, extra)
            kept = [w if g is None else x for w, g, x in zip(weights, grads, new)]
            pairs = zip(variables, arrays, after, written)
            return kept, [box.admitted(y) if used else x for box, x, y, used in pairs]

        return [Work(tuple(floating), variables, step)]

    def _transform(self, form: _StateForm, chains: Sequence[Chain]) -> Callable[..., Any]:
        """Return a step of the transformation over lists: new variables and new state."""
        transformation, stop = self._optax, vars(self)["_stop_gradients"]

        def transform(weights: Any, grads: Any, arrays: Any, extra: dict[str, Any]) -> Any:
            import optax

            v = as_container(chains, weights)
            with mixed_dtypes():
                try:
                    updates, after = transformation.update(
                        as_container(chains, grads), form.unflatten(arrays), v, **extra
                    )
                except TypeError as error:
                    if "required keyword-only argument" not in str(error):
                        raise
                    raise ArgumentTypeError(
                        "Optax cannot take a step: its transformation wants more than gradients: "
                        f"{error}. Nothing was changed. Hand it to the step by name, as in "
                        "optimizer.update(model, grads, value=loss)."
                    ) from None
                leaves = dict(flat(optax.apply_updates(v, updates)))  # type: ignore[arg-type]
            new = [leaves[chain] for chain in chains]
            return list(map(jax.lax.stop_gradient, new)) if stop else new, form.arrays(after)

        return transform

    # -- state --
    def _slot_names(self) -> list[str]:
        return [SLOT]

    @property
    def _optax(self) -> Any:
        return vars(self)["_transformation"].content

    @property
    def optax_state(self) -> Any:
        """The state as optax has it; None before there is one."""
        form, state = vars(self)["_form"], self._state()
        if form is None or not state:
            return None
        return form.unflatten(values_of(self, [state[chain] for chain in form.chains]))

    def reset(self) -> None:
        """Forget all state: the next step is the first."""
        super().reset()
        vars(self)["_form"] = None
        attributes.note_change(self)

    def _description(self) -> list[str]:
        update = self._optax.update
        return [getattr(update, "__qualname__", type(self._optax).__name__).partition(".")[0]]


class _StateForm:
    """The structure of optax's state for certain variables; random keys are kept as their data.

    Args:
        state: As optax makes it.
        variables: Chains of the variables.
    """

    def __init__(self, state: object, variables: Sequence[Chain]) -> None:
        paths, self.treedef = jax.tree_util.tree_flatten_with_path(state)
        known = set(variables)
        chains = [tuple(map(link, path)) for path, _ in paths]
        self.keys = tuple(jax.random.key_impl(x) if _is_key(x) else None for _, x in paths)
        self.owners = tuple(_owner(chain, known) for chain in chains)
        self.chains: tuple[Chain, ...] = tuple((SLOT, *chain) for chain in chains)

    def arrays(self, state: object) -> list[Any]:
        """Return a state as a list of arrays.

        Raises:
            StructureError: it has another structure than this one.
        """
        leaves, treedef = jax.tree.flatten(state)
        if treedef != self.treedef:
            raise StructureError(
                "the transformation returned a state of another structure than its init. "
                "Nothing was changed."
            )
        return [jax.random.key_data(x) if _is_key(x) else jnp.asarray(x) for x in leaves]

    def unflatten(self, arrays: Sequence[Any]) -> Any:
        """Return the state of these arrays, as optax has it."""
        leaves = [
            array if impl is None else jax.random.wrap_key_data(array, impl=impl)
            for array, impl in zip(arrays, self.keys)
        ]
        return jax.tree.unflatten(self.treedef, leaves)


class _Opaque:
    """Holds a transformation, a tuple of functions, as one value."""

    def __init__(self, content: object) -> None:
        self.content = content


def _is_key(leaf: object) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.bool_), jax.dtypes.prng_key)


def _owner(chain: Chain, variables: set[Chain]) -> Chain | None:
    """Return the variable of an array of state: the longest end of its path that is a chain."""
    return next((chain[start:] for start in range(len(chain)) if chain[start:] in variables), None)


def _reads_values(fn: Callable[..., Any], shapes: object) -> bool:
    """Return whether the result of `fn` depends on the values of its argument."""
    jaxpr = jax.make_jaxpr(fn)(shapes).jaxpr
    reached = set(map(id, jaxpr.invars))
    for equation in jaxpr.eqns:
        if any(id(variable) in reached for variable in equation.invars):
            reached.update(map(id, equation.outvars))
    return any(id(variable) in reached for variable in jaxpr.outvars)
