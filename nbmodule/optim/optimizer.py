"""The base of all optimizers: what a step is given, what it gives back, and where its count and learning rate lie."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
from jax.core import Tracer

from nbmodule.base import dialects
from nbmodule.base.kinds import DeviceLike, RateLike
from nbmodule.base.neighbors import TRAINING, no_such_attribute
from nbmodule.base.paths import hint
from nbmodule.core.boxes.frame import EAGER, Frame, birthplace, current_log, framed, here, now, write_all
from nbmodule.core.boxes.inner import Inner
from nbmodule.core.boxes.moment import reduced_at_one_moment
from nbmodule.core.boxes.placement import find_device
from nbmodule.core.boxes.variable import Buffer, Variable
from nbmodule.core.running.entry import ConstructorSignature
from nbmodule.core.shape.building import ensure_built
from nbmodule.core.shape.trainable import warn_if_nothing_trains
from nbmodule.core.shape.walk import is_module, plan_of
from nbmodule.core.transforms.jit import jit
from nbmodule.core.transforms.listening import Told, call_heard, ears, is_heard
from nbmodule.errors import ArgumentTypeError, AttributePathError, NotBuiltError, StructureError, TraceError
from nbmodule.optim import attributes, saving
from nbmodule.optim.boxes import next_count, parameters_of, places_to_write, values_of, write_at, write_in_place
from nbmodule.optim.part import Chain, Pairs, as_container, flatten, frozen_chains, is_floating, match, text
from nbmodule.optim.rate import as_given, as_rate, describe_rate, is_number_box, rate_now
from nbmodule.tree.compare import structure_difference
from nbmodule.tree.container import Container
from nbmodule.tree.properties import is_of_class

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule


class Memo:
    """What an optimizer remembers and can do without."""

    def __init__(self) -> None:
        self.compiled: dict[Any, Any] = {}  # whole steps, for `trace_on_next_step`
        self.layouts: list[Any] = []  # of the last steps, see `leafwise.py`
        self.retraces = 0  # traces in a row for nothing but a changed plain attribute
        self.schedules: dict[int, Any] = {}  # compiled schedules, for steps outside of `nb.jit`
        self.stepping = 0  # how many calls of `_step` are open
        self.trial: attributes.Trial | None = None


class Optimizer:
    """The base of all optimizers. One of your own defines `_step(self, v, grads)`, which returns new variables.

    In `_step` there are `self._lr`, the learning rate, and `self._count`, the number of steps, this one included: 1 in the
    first step. Arrays that are set as attributes (`self._momentum = ...`, a Container too) are the optimizer's state: they are
    carried through `nb.jit`, saved and restored. `state` and `set_state` may be defined to name them differently.

    Args:
        lr: Learning rate: a number; a function of nothing, asked before each step, also before each call of a compiled
            function; or a function of the step, which begins with 0 (a schedule, as optax has them).
        inplace: True lets `step` write into the Container or dict that it is given, and return it; a model's own `v` then
            changes the model. None and False: `step` returns new variables. (`update` always changes the model.)
        stop_gradients: Whether new variables are constants for a gradient that is taken through the step; False lets one
            differentiate through an update.
        trace_on_next_step: Whether the next `step` or `update` outside of `nb.jit` compiles the whole step as one program, for
            all steps of that form to come. Otherwise such steps run as compiled kernels of a few variables each, which starts
            sooner.
        device: Device or sharding for the state, such as `cpu:0`; by default it lies where its variables do.

    Raises:
        ArgumentError: a learning rate that is negative, infinite or NaN.

    Example:
        >>> class Plain(nb.Optimizer):
        ...     def _step(self, v, grads):
        ...         return v - grads * self._lr
        >>> Plain(lr=0.5).step(nb.Container(w=jnp.ones(2)), nb.Container(w=jnp.ones(2))).w
        Array([0.5, 0.5], dtype=float32)
    """

    __signature__ = ConstructorSignature()
    _is_stateful = True
    _unwatched = frozenset({"_memo", "_nbm"})  # no part of the structure
    _lasting = frozenset({attributes.GENERATION})  # what is not put back after a look: a trace in vain is never used

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        dialects.teach(cls)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        optimizer = object.__new__(cls)
        optimizer._revive()
        return optimizer

    def _revive(self) -> None:
        """What every optimizer has, also one that is built from a structure."""
        vars(self).update(_nbm=Inner(), _memo=Memo(), _held={})
        self._nbm.home = birthplace()

    def __init__(
        self,
        lr: RateLike,
        inplace: bool | None = None,
        stop_gradients: bool = True,
        trace_on_next_step: bool = False,
        device: DeviceLike | None = None,
    ) -> None:
        device = find_device(device)
        rate = as_rate(lr, device)
        for name, flag in (
            ("inplace", inplace),
            ("stop_gradients", stop_gradients),
            ("trace_on_next_step", trace_on_next_step),
        ):
            if not isinstance(flag, (bool, np.bool_)) and not (flag is None and name == "inplace"):
                raise ArgumentTypeError(f"{name}= is True or False; found {flag!r}. Nothing was made.")
        vars(self).update(
            _rates=(rate,),
            _counter=Buffer(np.zeros((), np.int32), device=device),
            _inplace=bool(inplace),
            _stop_gradients=bool(stop_gradients),
            _trace_on_next_step=bool(trace_on_next_step),
            _device=device,
        )
        attributes.note_change(self)

    # -- to be overridden ----------------------------------------------------------------------------
    def _step(self, v: Container, grads: Container) -> Mapping[str, Any]:
        """New variables from variables and gradients, all of which have the same chains."""
        raise NotImplementedError(f"{type(self).__name__} defines no _step(self, v, grads). Nothing was changed.")

    @property
    def state(self) -> Container:
        """What the next step depends on beside variables and gradients: the count, and attributes that hold arrays."""
        attributes.settle_trial(self)
        found = {name: attributes.held(self, attribute) for name, attribute in attributes.state_names(self).items()}
        return Container({**found, "count": self._counter.value})

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`."""
        attributes.settle_trial(self)
        title = f"cannot set the state of {type(self).__name__}"
        if not isinstance(state, Mapping):
            raise ArgumentTypeError(
                f"{title}: a Container or a dict is wanted, found {type(state).__name__}. Nothing was changed."
            )
        known = attributes.state_names(self)
        expected = [*known, "count"] if known else ["count", *(name for name in state if name != "count")]
        difference = structure_difference(dict.fromkeys(expected), dict.fromkeys(state.keys()))
        if difference is not None:
            raise StructureError(f"{title}:\n{difference}\nNothing was changed.")
        count = self._counter.admitted(state["count"])

        def take() -> None:
            for name in expected:
                if name != "count":
                    setattr(self, known.get(name) or attributes.attribute_for(self, name), state[name])
            self._counter.value = count

        saving.as_one_act(self, take)

    def _wanted_names(self, known: list[str], given: list[str]) -> list[str]:
        """Names of the arrays of state: those that there are, or before the first step those that are given."""
        return known if len(known) > 1 else ["count", *(name for name in given if name != "count")]

    # -- learning rate and count ---------------------------------------------------------------------
    @property
    def lr(self) -> Any:
        """The learning rate: an array if it is a number, else the function. Any kind can be assigned; a number compiles nothing again."""
        return as_given(vars(self)["_rates"][0])

    @lr.setter
    def lr(self, lr: RateLike) -> None:
        self._set_rate(0, lr)

    @property
    def current_lr(self) -> Any:
        """The learning rate that the next step will use, as a number."""
        return rate_now(vars(self)["_rates"][0], self._counter.value + 1, self._memo.schedules)

    def _set_rate(self, place: int, lr: RateLike) -> None:
        attributes.settle_trial(self)
        rates = vars(self)["_rates"]
        old = rates[place]
        if is_number_box(old) and not callable(lr) and not isinstance(lr, Variable):
            old.value = as_rate(lr).value
            return
        if now.frame is not None or here() != EAGER:
            raise TraceError(
                f"the learning rate of {type(self).__name__} can be changed inside a transform from a number to a number only. "
                "Nothing was changed. Assign a function or a variable outside."
            )
        vars(self)["_rates"] = (*rates[:place], as_rate(lr, vars(self)["_device"]), *rates[place + 1 :])
        attributes.note_change(self)

    @property
    def _lr(self) -> Any:
        """In a step, its learning rate, as a number."""
        return rate_now(vars(self)["_rates"][0], self._counter.value, self._memo.schedules)

    @_lr.setter
    def _lr(self, lr: RateLike) -> None:
        self._set_rate(0, lr)

    @property
    def _count(self) -> Any:
        """Number of steps; in a step, this one included."""
        return self._counter.value

    @property
    def count(self) -> Any:
        """Number of steps so far."""
        return self._counter.value

    # -- steps ---------------------------------------------------------------------------------------
    def step(self, v: Mapping[str, Any] | None = None, grads: object = None, ignore_missing: bool = False) -> Any:
        """Take a step and return the new variables.

        Args:
            v: Variables, a Container or a dict of arrays. Integers, and frozen parameters of a model's own `v`, stay.
            grads: Gradients, of the same chains.
            ignore_missing: Whether variables without a gradient stay as they are; an error otherwise.

        Raises:
            StructureError: gradients are missing, or are there for unknown variables; or state belongs to other shapes.
            ShapeError: a gradient has another shape than its variable.

        Example:
            >>> nb.SGD(0.1).step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})["w"]
            Array([0.9, 0.9], dtype=float32)
        """
        return self._step_with(v, grads, ignore_missing, None)

    def _step_with(self, v: Any, grads: object, ignore_missing: bool, extra: Mapping[str, Any] | None) -> Any:
        __tracebackhide__ = True
        if grads is None:
            raise ArgumentTypeError(
                f"{type(self).__name__}.step takes the variables and their gradients, and was given "
                f"{'neither' if v is None else 'one of them'}. Nothing was changed. Gradients are returned here, not kept: write "
                f"{TRAINING}."
            )
        leaves, treedef, chains = flatten(v, "the variables")
        idle = frozen_chains(v).union(chain for chain, leaf in zip(chains, leaves) if not is_floating(leaf))
        places = places_to_write(v) if vars(self).get("_inplace") else None

        def step(leaves: list[Any], grads: object, extra: Any) -> list[Any]:
            part = Pairs(chains, leaves, [], extra=extra)
            new = self._taken(part, grads, ignore_missing, idle)
            write_all(*part.written())
            return new

        run = self._whole(("step", chains, ignore_missing, idle), step) if self._compiles(extra) else step
        if places is None:
            return jax.tree.unflatten(treedef, run(leaves, grads, extra))
        if now.frame is None and here() == EAGER:
            new, *written = framed(lambda frame: (run(leaves, grads, extra), *frame.writes()), log=current_log())
            changed = [i for i, leaf in enumerate(leaves) if new[i] is not leaf]
            write_in_place([places[i] for i in changed], [new[i] for i in changed], written)
            return v
        for place, before, after in zip(places, leaves, run(leaves, grads, extra)):
            if after is not before:
                write_at(place, after)
        return v

    def update(self, model: CoreModule, grads: Any = None, ignore_missing: bool = False) -> None:
        """Take a step and change the model; frozen and integer parameters stay.

        Args:
            model: A module.
            grads: Gradients, a Container like `model.v`, as `nb.grad` gives them.
            ignore_missing: Whether variables without a gradient stay as they are; an error otherwise.

        Raises:
            StructureError: gradients are missing, or are there for unknown variables; or state belongs to other shapes.
            ShapeError: a gradient has another shape than its variable.

        Example:
            >>> model = nb.Module(w=nb.Parameter([1.0, 2.0]))
            >>> optimizer = nb.SGD(0.5)
            >>> optimizer.update(model, nb.grad(lambda m: (m.w ** 2).sum())(model))
            >>> model.w
            Parameter([0. 0.], device=cpu:0)
        """
        self._update_with(model, grads, ignore_missing, None)

    def _update_with(
        self, model: CoreModule, grads: object, ignore_missing: bool, extra: Mapping[str, Any] | None
    ) -> None:
        __tracebackhide__ = True
        if grads is None:
            raise ArgumentTypeError(
                f"{type(self).__name__}.update takes the model and its gradients, and was given one of them. Nothing was changed. An "
                f"optimizer here holds no model: write {TRAINING}."
            )
        if not is_module(model):
            raise ArgumentTypeError(
                f"update takes a module and changes it; found {type(model).__name__}. Nothing was changed. For variables use "
                "`step(v, grads)`, which returns new ones."
            )
        if ears.listener is not None and is_heard():
            call_heard(Told(self._update_with, self), (model, grads, ignore_missing, extra), {})
            return
        ensure_built(model)

        def step(model: CoreModule, grads: object, extra: Any) -> None:
            boxes, chains, idle = parameters_of(model)
            if not boxes:
                warn_if_nothing_trains(model, "a step changes nothing")
            weights = values_of(model, boxes)
            part = Pairs(chains, weights, [], model, extra)
            new = self._taken(part, grads, ignore_missing, idle)
            changed = [i for i, value in enumerate(new) if value is not weights[i]]
            part.write([boxes[i] for i in changed], [new[i] for i in changed])
            write_all(*part.written())

        (self._whole(("update", ignore_missing), step) if self._compiles(extra) else step)(model, grads, extra)

    def _taken(self, part: Pairs, grads: object, ignore_missing: bool, idle: frozenset[Chain]) -> list[Any]:
        attributes.settle_trial(self)
        if now.frame is not None:  # all own boxes are inputs of a compiled function, or it is traced again right now
            values_of(self, plan_of(self).boxes)
        elif here() != EAGER:  # a raw trace: where no step can come out of it, it is refused before there is state
            self._counter.value = self._counter.value
        part.grads = match(
            f"{type(self).__name__} cannot take a step", part.chains, part.weights, idle, grads, ignore_missing
        )
        return jax.named_scope(type(self).__name__.lower())(self._advance)(part)  # a group of its own in graphs

    # What a first step does, ahead of it: see `core/transforms/ahead.py`.
    def _as_it_is(self, *, is_fresh: bool = False) -> Any:
        """What `_put_back` wants to know; fresh state is none to go back to."""
        counter = vars(self).get("_counter")
        before = attributes.attributes_of(self) | ({"_slots": {}} if is_fresh else {})
        return before, -1 if is_fresh else self._nbm.version, None if counter is None else counter._known()

    def _put_back(self, mark: Any) -> None:
        """After a call that has raised: the state that it has made is gone, if no step was taken."""
        before, version, count = mark
        _, version_now, count_now = self._as_it_is()
        if version_now != version and count_now is count:
            attributes.put_back(self, before)

    def _begin_ahead(self, model: CoreModule) -> Any:
        """Make the state that `update(model, ...)` makes in a first step; gives what tells it from other state, None if none was made."""
        return None

    def _forget_ahead(self, mark: Any) -> None:
        """Forget the state that was made ahead; what a step has made stays."""

    def _has_used_state(self, written: Collection[Variable]) -> bool:
        """Whether a step that has written these boxes has used the state, and all of it."""
        return self._counter in written

    def _written_by_update(self, model: CoreModule) -> list[Variable]:
        """The boxes that `update(model, ...)` writes, as far as can be told before a step."""
        boxes = parameters_of(model)[0]
        rates = set(filter(is_number_box, vars(self)["_rates"]))
        return [*(boxes[i] for i in self._trained(model)), *(box for box in plan_of(self).boxes if box not in rates)]

    def _trained(self, model: CoreModule) -> list[int]:
        """Which of the parameters of a model `update` changes, if it is given a gradient for each."""
        _, chains, idle = parameters_of(model)
        return [i for i, chain in enumerate(chains) if chain not in idle]

    def _compiles(self, extra: Mapping[str, Any] | None) -> bool:
        """Whether this step is compiled as a whole; functions among the extra arguments cannot be."""
        if "_rates" not in vars(self):
            kind = type(self).__name__
            raise NotBuiltError(
                f"{kind} has no learning rate: its __init__ must call super().__init__(lr). Nothing was changed."
            )
        if not vars(self)["_trace_on_next_step"] or now.busy or here() != EAGER:
            return False
        return extra is None or not any(map(callable, extra.values()))

    def _whole(self, key: Any, step: Any) -> Any:
        known = self._memo.compiled.get(key)
        if known is None:
            known = self._memo.compiled[key] = jit(step)
        return known

    def _advance(self, part: Pairs) -> list[Any]:
        """New values for all variables of the part. Here: by way of `_step`, with Containers of what is to change."""
        active = part.active()
        if now.frame is None and here() == EAGER:
            new, written, values = framed(lambda frame: self._stepped_aside(active, frame), log=current_log())
            part.write(written, values)
        else:
            before = self._counter.value
            try:
                new = self._stepped(active)
            except BaseException:
                self._counter.value = before
                raise
        return part.merged(new)

    def _stepped_aside(self, part: Pairs, frame: Frame) -> tuple[list[Any], tuple[Variable, ...], tuple[Any, ...]]:
        """A step in a frame of its own: what it sets on this optimizer is set with the variables, at one moment."""
        attributes.settle_trial(self)  # of a first try, where the frame turns out to need a token
        new = self._stepped(part)
        return new, *frame.writes()

    def _stepped(self, part: Pairs) -> list[Any]:
        """What `_step` returns, the count being that of this step."""
        depth = self._memo.stepping
        try:
            try:
                self._memo.stepping = depth + 1
                self._counter.value = next_count(self._counter.value)
                v, grads = as_container(part.chains, part.weights), as_container(part.chains, part.grads)
                return self._checked(part, self._step(v, grads))
            finally:
                self._memo.stepping = depth
        finally:  # see `frame.calling`
            self._memo.stepping = depth

    def _checked(self, part: Pairs, returned: object) -> list[Any]:
        """The leaves that `_step` returned, in order, in shape and dtype."""
        title = f"{type(self).__name__}._step"
        leaves, _, chains = flatten(returned, f"what {title} returns")
        if chains != part.chains:
            known = dict(zip(chains, leaves))
            difference = structure_difference(dict.fromkeys(map(text, part.chains)), dict.fromkeys(map(text, chains)))
            if difference is not None:
                raise StructureError(
                    f"{title} must return the variables that it was given:\n{difference}\nNo variable was changed."
                )
            leaves = [known[chain] for chain in part.chains]
        for chain, old, new in zip(part.chains, part.weights, leaves):
            if old.shape != new.shape:
                raise StructureError(
                    f'{title} must return variables of the same shape; it was given "{text(chain)}" as {list(old.shape)} and '
                    f"returned {list(new.shape)}. No variable was changed."
                )
        new = [leaf if leaf.dtype == old.dtype else leaf.astype(old.dtype) for old, leaf in zip(part.weights, leaves)]
        if vars(self)["_stop_gradients"]:
            return [jax.lax.stop_gradient(leaf) if isinstance(leaf, Tracer) else leaf for leaf in new]
        return new

    # -- attributes ----------------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._unwatched or hasattr(getattr(type(self), name, None), "__set__"):
            object.__setattr__(self, name, value)
        else:
            attributes.assign(self, name, value)

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        if "_held" in own and name in own["_held"]:
            attributes.settle_trial(self)
            if name in own["_held"]:
                return attributes.held(self, name)
            if name in own:
                return own[name]
        if is_of_class(self, name):
            return object.__getattribute__(self, name)
        public = [each for each in dir(type(self)) if not each.startswith("_")]
        said = no_such_attribute(name) or hint(name, public)
        raise AttributePathError(f'{type(self).__name__} has no attribute "{name}"{said}')

    def __delattr__(self, name: str) -> None:
        attributes.delete(self, name)

    # -- saving --------------------------------------------------------------------------------------
    def state_dict(self) -> OrderedDict[str, np.ndarray]:
        """All that the next step depends on, as read-only NumPy arrays by name; a number as learning rate is one of them.

        Example:
            >>> optimizer = nb.Adam(1e-3)
            >>> _ = optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
            >>> list(optimizer.state_dict())
            ['count', 'lr', 'mw/w', 'vw/w']
        """
        return saving.state_dict(self)

    def _names_of_boxes(self) -> dict[Variable, str]:
        return saving.names_of_boxes(self)

    def load_state_dict(self, mapping: Mapping[str, Any], strict: bool = True) -> None:
        """Continue from a `state_dict()`: all of it, or nothing if it does not fit.

        A learning rate in it is taken over where this optimizer has a number too, not where it follows a function.

        Args:
            mapping: Names and arrays.
            strict: Whether names must agree. Otherwise surplus ones are passed over, and what is missing stays as it is.

        Raises:
            UnexpectedKeysError: names that this optimizer does not have.
            MissingKeysError: names that it has and that are not in the mapping.
            ShapeError: an array has another shape.
        """
        saving.load_state_dict(self, mapping, strict)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return reduced_at_one_moment(self, plan_of, lambda: object.__reduce_ex__(self, protocol))

    def __getstate__(self) -> dict[str, Any]:
        attributes.settle_trial(self)
        kept = {name: value for name, value in vars(self).items() if name not in type(self)._unwatched}
        return kept | {"_held": {name: attributes.held(self, name) for name in kept["_held"]}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        arrays = state.pop("_held")
        vars(self).update(state)
        for name, value in arrays.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._facts())})"

    def _facts(self) -> list[str]:
        return [f"lr={describe_rate(vars(self)['_rates'][0])}"]
