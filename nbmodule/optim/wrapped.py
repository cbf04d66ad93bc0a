"""Any transformation of optax as an optimizer: its state lies in boxes, named by their place in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import as_read_or_left, received
from nbmodule.base.kinds import DeviceLike, RateLike, Shaped
from nbmodule.base.nesting import flat, nest
from nbmodule.base.paths import link
from nbmodule.base.promotion import mixed_dtypes
from nbmodule.core.boxes.frame import now, write_all
from nbmodule.core.boxes.variable import Buffer, Variable
from nbmodule.core.shape.building import ensure_built
from nbmodule.core.shape.older import in_present_form
from nbmodule.core.shape.walk import is_module
from nbmodule.core.transforms.binding import settle
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeStructureError, StructureError, TraceError
from nbmodule.optim import attributes
from nbmodule.optim.boxes import is_zero, known_values, next_count, own_box, parameters_of, values_of
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.part import Chain, Pairs, as_container, flatten, is_floating, text
from nbmodule.optim.rate import as_number, as_scalar
from nbmodule.tree.compare import structure_difference
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule

AT_ONCE = 200  # variables that are compiled as one program outside of `nb.jit`; more would take many seconds
INSIDE = "optax"  # the name of optax's own state in `state`


class StateForm:
    """The structure of optax's state for certain variables. Random keys in it are kept as their data.

    Args:
        state: As optax makes it.
        variables: Chain, shape and dtype of each variable.
    """

    def __init__(self, state: object, variables: tuple[tuple[Chain, Any, Any], ...]) -> None:
        paths, self.treedef = jax.tree_util.tree_flatten_with_path(state)
        self.variables = variables
        self.chains: tuple[Chain, ...] = tuple(tuple(map(link, path)) for path, _ in paths)
        self.keys = tuple(jax.random.key_impl(leaf) if is_key(leaf) else None for _, leaf in paths)
        known = {chain for chain, _, _ in variables}
        self.owners = tuple(_owner(chain, known) for chain in self.chains)

    def arrays(self, state: object) -> list[Any]:
        """A state as a list of arrays.

        Raises:
            StructureError: it has another structure than this one.
        """
        leaves, treedef = jax.tree.flatten(state)
        if treedef != self.treedef:
            raise StructureError(
                "the transformation gave another structure of state than its init. Nothing was changed."
            )
        return [jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf) for leaf in leaves]

    def state(self, arrays: Sequence[Any]) -> Any:
        """The state of these arrays, as optax has it."""
        leaves = [
            array if impl is None else jax.random.wrap_key_data(array, impl=impl)
            for array, impl in zip(arrays, self.keys)
        ]
        return jax.tree.unflatten(self.treedef, leaves)


def is_key(leaf: object) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.bool_), jax.dtypes.prng_key)


def _owner(chain: Chain, variables: set[Chain]) -> Chain | None:
    """The variable to which an array of state belongs: the longest end of its place that is the chain of one."""
    return next((chain[start:] for start in range(len(chain)) if chain[start:] in variables), None)


class Optax(Optimizer):
    """Any transformation of optax, with its state kept in the optimizer.

    The transformation sees variables and gradients as Containers like `model.v`, integers left out, so masks and labels may be
    made with `jax.tree.map(..., model.v)`. Frozen parameters are in them, with gradients of zero, and stay as they are; so does
    their state.

    The learning rate is part of the transformation. Made with `optax.inject_hyperparams` it can be read and changed as `lr`,
    once there is state. Outside of `nb.jit` a step over more than 200 variables runs operation by operation, since compiling it
    as one program takes long; `trace_on_next_step=True` does that once.

    Args:
        transformation: Anything with `init` and `update`, such as `optax.adamw(1e-3)` or an `optax.chain`.
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
        if not callable(getattr(transformation, "init", None)) or not callable(getattr(transformation, "update", None)):
            raise ArgumentTypeError(
                f"nb.Optax takes a transformation of optax, such as optax.adam(1e-3); found {type(transformation).__name__}."
            )
        super().__init__(0.0, inplace, stop_gradients, trace_on_next_step, device)
        vars(self).update(_transformation=Keeper(transformation), _form=None, _leaves=(), _given=None, _rates=())

    # -- learning rate -------------------------------------------------------------------------------
    @property
    def lr(self) -> Any:
        """The learning rate, where the transformation was made with `optax.inject_hyperparams` and has state; else None."""
        box = self._lr_box()
        return None if box is None else box.value

    @lr.setter
    def lr(self, lr: RateLike) -> None:
        box = self._lr_box()
        if box is not None:
            box.value = as_scalar(lr if isinstance(lr, Tracer) else as_number(lr)).astype(box.dtype)
        elif vars(self)["_form"] is None:
            raise ArgumentError(
                "Optax has no learning rate before it has state. Nothing was changed. Take a step, or call `init(model)`, first."
            )
        else:
            raise ArgumentError(
                "the learning rate is inside the transformation and cannot be changed. Nothing was changed. Make it with "
                "optax.inject_hyperparams, as in nb.Optax(optax.inject_hyperparams(optax.adam)(learning_rate=1e-3)), or give optax a schedule."
            )

    @property
    def _lr(self) -> Any:
        return self.lr

    @_lr.setter
    def _lr(self, lr: RateLike) -> None:
        self.lr = lr

    @property
    def current_lr(self) -> Any:
        return self.lr

    def _lr_box(self) -> Variable | None:
        form: StateForm | None = vars(self)["_form"]
        pairs = () if form is None else zip(form.chains, vars(self)["_leaves"])
        return next((box for chain, box in pairs if chain[-2:] == ("hyperparams", "learning_rate")), None)

    # -- steps ---------------------------------------------------------------------------------------
    def step(
        self, v: Mapping[str, Any] | None = None, grads: object = None, ignore_missing: bool = False, **extra: object
    ) -> Any:
        """Take a step and return the new variables; see `Optimizer.step`.

        Args:
            v: Variables.
            grads: Gradients.
            ignore_missing: Whether variables without a gradient stay as they are.
            **extra: Handed to the transformation, for those that want more: `value=loss`, say.
        """
        return self._step_with(v, grads, ignore_missing, extra)

    def update(self, model: CoreModule, grads: Any = None, ignore_missing: bool = False, **extra: Any) -> None:
        """Take a step and change the model; see `Optimizer.update`.

        Args:
            model: A module.
            grads: Gradients, a Container like `model.v`.
            ignore_missing: Whether variables without a gradient stay as they are.
            **extra: Handed to the transformation, for those that want more: `value=loss`, say.
        """
        self._update_with(model, grads, ignore_missing, extra)

    def init(self, model: CoreModule) -> None:
        """Make the state now, for a module or for variables. The first step does it else.

        Example:
            >>> import optax
            >>> optimizer = nb.Optax(optax.inject_hyperparams(optax.sgd)(learning_rate=0.5))
            >>> optimizer.init({"w": jnp.ones(2)})
            >>> optimizer.lr
            Array(0.5, dtype=float32)
        """
        if is_module(model):
            ensure_built(model)
            boxes, chains, _ = parameters_of(model)
            self._shaped(Pairs(chains, known_values(boxes), [None] * len(boxes), model))
        else:
            leaves, _, chains = flatten(model, "what init takes")
            self._shaped(Pairs(chains, leaves, [None] * len(leaves)))

    def _advance(self, part: Pairs) -> list[Any]:
        if type(self)._step is not Optimizer._step:  # a class of the user's own
            return super()._advance(part)
        count = self._counter.value
        new = self._follow(part)
        part.write([self._counter], [next_count(count)])
        return new

    def _follow(self, part: Pairs) -> list[Any]:
        form, kept = self._shaped(part)
        boxes = vars(self)["_leaves"]
        state = values_of(self, boxes)
        weights = [part.weights[i] for i in kept]
        grads = [jnp.zeros_like(part.weights[i]) if part.grads[i] is None else part.grads[i] for i in kept]
        idle = {part.chains[i] for i in kept if part.grads[i] is None}
        extra = dict(part.extra or {})
        run = self._computed
        if now.frame is None and len(weights) <= AT_ONCE and not any(map(callable, extra.values())):
            run = self._whole("transformation", self._computed)
        values, new_state = run(weights, grads, state, extra)
        kept_state = [i for i, owner in enumerate(form.owners) if owner not in idle]
        part.write([boxes[i] for i in kept_state], [boxes[i].admitted(new_state[i]) for i in kept_state])
        new = list(part.weights)
        for i, value in zip(kept, values):
            if part.grads[i] is not None:
                new[i] = value
        return new

    def _computed(
        self, weights: list[Any], grads: list[Any], state: list[Any], extra: dict[str, Any]
    ) -> tuple[list[Any], list[Any]]:
        """What optax makes of it: new variables and new state."""
        import optax

        own = vars(self)
        form, transformation = own["_form"], own["_transformation"].thing
        chains = tuple(chain for chain, _, _ in form.variables)
        v = as_container(chains, weights)
        with mixed_dtypes():
            try:
                updates, after = transformation.update(as_container(chains, grads), form.state(state), v, **extra)
            except TypeError as error:
                if "required keyword-only argument" not in str(error):
                    raise
                raise ArgumentTypeError(
                    f"Optax cannot take a step: its transformation wants more than gradients: {error}. Nothing was changed. Hand it to the "
                    "step by name, as in optimizer.update(model, grads, value=loss)."
                ) from None
            after_v: Any = optax.apply_updates(v, updates)
        index = dict(flat(after_v))
        new = [index[chain] for chain in chains]
        return list(map(jax.lax.stop_gradient, new)) if own["_stop_gradients"] else new, form.arrays(after)

    # -- state ---------------------------------------------------------------------------------------
    def _begin_ahead(self, model: CoreModule) -> Any:
        own = vars(self)
        if own["_form"] is not None or own["_given"] is not None or type(self)._step is not Optimizer._step:
            return None
        boxes, chains, _ = parameters_of(model)
        settle(list(boxes))  # all at once
        return self._shaped(Pairs(chains, known_values(boxes), [], model))[0]

    def _forget_ahead(self, mark: StateForm) -> None:
        if vars(self)["_form"] is mark:
            vars(self).update(_form=None, _leaves=())
            attributes.note_change(self)

    def _shaped(self, part: Pairs) -> tuple[StateForm, list[int]]:
        """The form of the state for these variables, made or extended if need be, and the places of floating variables."""
        own = vars(self)
        kept = [i for i, weight in enumerate(part.weights) if is_floating(weight)]
        variables = tuple((part.chains[i], tuple(part.weights[i].shape), part.weights[i].dtype) for i in kept)
        form: StateForm | None = own["_form"]
        if form is not None and form.variables == variables:
            return form, kept
        if form is not None:
            self._check_shapes(form, variables)
        chains = tuple(chain for chain, _, _ in variables)
        state = self._initial_state(chains, self._own_weights(part, kept))
        made = StateForm(state, variables)
        with jax.ensure_compile_time_eval():
            arrays = dict(zip(made.chains, made.arrays(state)))
        known = dict(zip(form.chains, own["_leaves"])) if form is not None else {}
        given = self._checked_given(arrays)
        boxes = []
        for chain, array in arrays.items():
            same = chain in known and known[chain].shape == array.shape
            boxes.append(known[chain] if same else self._box(given.get(chain, array)))
        own.update(_form=made, _leaves=tuple(boxes), _given=None)
        attributes.note_change(self)
        return made, kept

    def _own_weights(self, part: Pairs, kept: list[int]) -> list[Any]:
        """Values to make state from: those of before any trace, where they are known."""
        if part.model is None:
            return [part.weights[i] for i in kept]
        boxes = parameters_of(part.model)[0]
        return known_values([boxes[i] for i in kept])

    def _initial_state(self, chains: tuple[Chain, ...], weights: list[Any]) -> Any:
        def init(v: Mapping[str, Any]) -> Any:
            with mixed_dtypes():
                return vars(self)["_transformation"].thing.init(v)

        if not any(isinstance(weight, Tracer) for weight in weights):
            with jax.ensure_compile_time_eval():
                return init(as_container(chains, weights))
        shapes = [jax.ShapeDtypeStruct(weight.shape, weight.dtype) for weight in weights]
        with jax.ensure_compile_time_eval():
            if reads_values(lambda leaves: init(as_container(chains, leaves)), shapes):
                raise TraceError(
                    "the first step of this transformation makes its state from the values of the variables, and they are not known "
                    "while tracing. Nothing was changed. Call `init(v)` outside first, or use `update(model, grads)`."
                )
            return init(as_container(chains, [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]))

    def _check_shapes(self, form: StateForm, variables: tuple[tuple[Chain, Any, Any], ...]) -> None:
        known = {chain: (shape, dtype) for chain, shape, dtype in form.variables}
        for chain, shape, _ in variables:
            if chain in known and known[chain][0] != shape:
                raise ShapeStructureError(
                    f'Optax cannot take a step: its state for "{text(chain)}" is for a variable of shape {list(known[chain][0])}, the '
                    f"variable has shape {list(shape)}. Nothing was changed. Use one optimizer for each model, or forget the state by `reset()`."
                )

    def _checked_given(self, arrays: Mapping[Chain, Any]) -> Mapping[Chain, Any]:
        """State that was set before there were variables, if it fits them."""
        given = vars(self)["_given"]
        if given is None:
            return {}
        difference = structure_difference(
            {text(chain): array for chain, array in arrays.items()},
            {text(chain): array for chain, array in given.items()},
        )
        if difference is not None:
            raise ShapeStructureError(
                f"Optax cannot take a step: the state that it was given does not fit.\n{difference}\nNothing was changed."
            )
        return given

    def _box(self, array: Shaped) -> Buffer:
        return own_box(self, lambda: array, array.shape, array.dtype, vars(self)["_device"])

    def _state_boxes(self) -> list[tuple[Chain, Buffer]]:
        """Each box of state with its chain."""
        form = vars(self)["_form"]
        return [] if form is None else [((INSIDE, *c), box) for c, box in zip(form.chains, vars(self)["_leaves"])]

    @property
    def optax_state(self) -> Any:
        """The state as optax has it; None before there is one."""
        form: StateForm | None = vars(self)["_form"]
        return None if form is None else form.state(values_of(self, vars(self)["_leaves"]))

    @property
    def state(self) -> Container:
        """`count`, the number of steps, and `optax`, the state of the transformation by its places: `optax/v0/mu/w`, say."""
        own = vars(self)
        named = dict(own["_given"] or {})
        if own["_form"] is not None:
            named = dict(zip(own["_form"].chains, values_of(self, own["_leaves"])))
        return Container._from_dict({"count": self._counter.value, INSIDE: nest(named)})

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state`. Before the first step it is kept, and compared with the variables then.

        Raises:
            StructureError: places are missing, or are there and unknown; or an array has another shape.
        """
        if (
            not isinstance(state, Mapping)
            or {*state.keys()} != {"count", INSIDE}
            or not isinstance(state[INSIDE], Mapping)
        ):
            raise StructureError(
                'cannot set the state of Optax: a Container of "count" and "optax" is wanted. Nothing was changed.'
            )
        given = {
            chain: leaf.value
            if isinstance(leaf, Variable)
            else jnp.array(received(leaf, text(chain), "Nothing was changed."))
            for chain, leaf in flat(state[INSIDE])
        }
        count = self._counter.admitted(jnp.array(as_read_or_left(state["count"])))
        form: StateForm | None = vars(self)["_form"]
        if form is None:
            vars(self)["_given"] = given or None
        elif not given and is_zero(count):
            self.reset()  # it was taken before the first step
        else:
            given = in_present_form(given, form.chains)
            boxes = dict(zip(form.chains, vars(self)["_leaves"]))
            difference = structure_difference(
                {text(c): box for c, box in boxes.items()}, {text(c): array for c, array in given.items()}
            )
            if difference is not None:
                raise ShapeStructureError(f"cannot set the state of Optax:\n{difference}\nNothing was changed.")
            values = [box.admitted(given[chain]) for chain, box in boxes.items()]
            write_all((*boxes.values(), self._counter), (*values, count))
            return
        self._counter.value = count

    def _wanted_names(self, known: list[str], given: list[str]) -> list[str]:
        if vars(self)["_form"] is not None:
            return known
        return ["count", *(name for name in given if name.startswith(f"{INSIDE}/"))]

    def reset(self) -> None:
        """Forget all state: the next step is the first."""
        vars(self).update(_form=None, _leaves=(), _given=None)
        attributes.note_change(self)
        self._counter.value = jnp.zeros((), jnp.int32)

    def _facts(self) -> list[str]:
        made = vars(self)["_transformation"].thing
        return [getattr(made.update, "__qualname__", type(made).__name__).partition(".")[0]]


class Keeper:
    """Keeps a transformation, a tuple of functions, as one thing."""

    def __init__(self, thing: object) -> None:
        self.thing = thing


def reads_values(fn: Callable[..., Any], shapes: object) -> bool:
    """Whether what `fn` gives depends on the values of its argument, not only on its shapes."""
    jaxpr = jax.make_jaxpr(fn)(shapes).jaxpr
    reached = set(map(id, jaxpr.invars))
    for equation in jaxpr.eqns:
        if any(id(variable) in reached for variable in equation.invars):
            reached.update(map(id, equation.outvars))
    return any(id(variable) in reached for variable in jaxpr.outvars)
