"""`nb.attribute`: which inputs, and which modules' returns, a chosen output comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.foreign import received
from nbmodule.base.format import format_number, printable_repr
from nbmodule.base.kinds import is_whole
from nbmodule.base.sockets import Shown
from nbmodule.core.recording.tracker import describe
from nbmodule.core.structure.naming import entries_of
from nbmodule.errors import ArgumentError, PathError, ShapeError
from nbmodule.interventions.apply_settings import is_floating, numbers_of
from nbmodule.interventions.patch import record_at
from nbmodule.interventions.run import Metric, Run, RunPlan
from nbmodule.interventions.targets import heads_of, names_of, targets
from nbmodule.interventions.values import Setting

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

METHODS = {
    "gradient": "gradient × input",
    "integrated": "integrated gradients",
    "direct": "direct, from the last residual stream",
}
"""For each method its words in the title."""


def attribute(
    model: object,
    x: object,
    metric: Metric = None,
    *,
    method: str = "gradient",
    target: object = None,
    loss: Callable[..., Any] | None = None,
    baseline: object = None,
    steps: int = 50,
    stream: object = None,
    components: object = None,
    heads: bool = False,
    labels: Sequence[str] = (),
    **kwargs: object,
) -> Attribution:
    """Attribute one number of the output to the inputs and to the returns of modules.

    `gradient` multiplies the gradient with the input, and for each module with its return.
    `integrated` takes the mean gradient on the straight line from a baseline to the input
    (integrated gradients): the attributions of the inputs add up to the difference of the metric
    between the two; for each module it gives the part that goes through its return (conductance).
    `direct` is direct logit attribution: the contribution of each module that writes into the last
    residual stream, with the scale of the last norm held constant.

    Of a return of several arrays the first floating one counts. Token numbers have no gradient; the
    gradient by the return of their embedding is used, summed over its features.

    Args:
        model: A module, or a model of Flax, Equinox, Haiku or Keras.
        x: Its input; a tuple is a list of arguments, of which the first gets attributions.
        metric: The number to explain: the index of a class, a whole index such as `(0, -1, 5)`, or
            a function of the output.
        method: `gradient`, `integrated` or `direct`.
        target: The expected output; its loss is explained instead.
        loss: A function of (output, target), as in `nb.what_if`.
        baseline: Start of the line; zeros by default, for tokens a vector of zeros.
        steps: Points of the line at which the gradient is taken (Gauss-Legendre).
        stream: For `direct`, the module that reads the last residual stream: the last norm, or the
            last linear layer.
        components: For `direct`, the modules that write into it: paths or globs.
        heads: For `direct`, whether attention layers are divided into their heads.
        labels: Texts of the tokens, or names of the columns, for the picture.
        **kwargs: Keyword arguments of the model.

    Raises:
        ArgumentError: neither metric nor target was given, or the method needs another argument.

    Example:
        >>> model = nb.Linear(3, 2, with_bias=False)
        >>> found = nb.attribute(model, jnp.array([[1.0, 2.0, 0.0]]), 0)
        >>> bool(abs(found.inputs.sum() - found.metric) < 1e-6), float(found.inputs[0, 2])
        (True, 0.0)

    Source: Sundararajan et al. (2017), arXiv:1703.01365, and Dhamdhere et al. (2018),
    arXiv:1805.12233, for `integrated`; Elhage et al. (2021), transformer-circuits.pub, for
    `direct`.
    """
    if method not in METHODS:
        raise ArgumentError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    run = Run(model, x, kwargs, target=target, loss=loss, metric=metric)
    run.require_metric("an attribution")
    if not is_whole(steps) or steps < 1:
        raise ArgumentError(f"steps must be an integer of at least 1, got {steps!r}.")
    labels = tuple(map(str, labels))
    if method == "direct":
        return _direct(run, stream, components, heads, labels)
    if stream is not None or components is not None or heads:
        raise ArgumentError(
            f"stream=, components= and heads= are for method='direct'; the method is {method!r}."
        )
    return _by_gradient(run, method, baseline, int(steps), labels)


@dataclass(eq=False, repr=False)
class Attribution(Shown):
    """The result of `nb.attribute`.

    Attributes:
        name: The class of the model.
        method: `gradient`, `integrated` or `direct`.
        metric: The number that is explained.
        inputs: Attribution of each entry of the first input, of tokens one number each; None for
            `direct`.
        of: Path of the embedding for tokens; empty for the input itself.
        modules: Attribution of the return of each module; for `direct` of each component, or of its
            heads.
        labels: Texts of the tokens or columns.
        notes: Modules that were left out, and doubts.
    """

    name: str
    method: str
    metric: float
    inputs: np.ndarray | None
    modules: Mapping[str, float]
    of: str = ""
    labels: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def facts(self) -> tuple[str, ...]:
        """The title."""
        return self.name, METHODS[self.method], f"explained: {format_number(self.metric)}"

    @printable_repr
    def __repr__(self) -> str:
        lines = [" · ".join(self.facts)]
        if self.inputs is not None:
            low, high = float(self.inputs.min()), float(self.inputs.max())
            total = format_number(float(self.inputs.sum()))
            where = f" (returned by {self.of})" if self.of else ""
            lines.append(
                f"  inputs{where}  sum {total}, from {format_number(low)} to {format_number(high)}"
            )
        width = max(map(len, self.modules), default=0)
        for path, result in sorted(self.modules.items(), key=lambda entry: -abs(entry[1])):
            lines.append(f"  {(path or self.name).ljust(width)}  {format_number(result)}")
        return "\n".join([*lines, *self.notes])


def _by_gradient(
    run: Run, method: str, baseline: object, steps: int, labels: Sequence[str]
) -> Attribution:
    named = names_of(run.model)
    once = [name for name in run.calls if name in named and name not in run.repeated]
    is_input = is_floating(run.arrays[0])
    source = "" if is_input else _embedding(run, {name: named[name] for name in once})
    point = run.arrays[0] if is_input else run.before.returns[source]
    start = 0 if baseline is None else jnp.asarray(received(baseline, "baseline"), point.dtype)
    try:
        start = jnp.broadcast_to(jnp.asarray(start, point.dtype), point.shape)
    except ValueError:
        raise ShapeError(
            f"baseline must fit the input {list(point.shape)}, got {describe(baseline)}."
        ) from None
    names = list(filter(None, once))
    left_out = f"called several times, and left out: {', '.join(run.repeated)}"
    notes = [left_out] if run.repeated else []
    along = point - start
    if method == "integrated":
        inputs, of_modules = _integrated(run, names, source, start, along, steps)
        first = _gradients(run, names, source, start, along).metric
        notes += _completeness(float(inputs.sum()), float(run.before.metric - first), steps)
    else:
        found = _gradients(run, names, source, point)
        inputs = found.by_point * along
        of_modules = [(by * run.before.returns[n]).sum() for n, by in zip(names, found.by_return)]
    return Attribution(
        type(run.model).__name__,
        method,
        float(run.before.metric),
        np.asarray(inputs if is_input else inputs.sum(-1)),
        {name: float(result) for name, result in zip(names, of_modules)},
        of=source,
        labels=labels,
        notes=notes,
    )


def _integrated(
    run: Run, names: list[str], source: str, start: Any, along: Any, steps: int
) -> tuple[Any, Any]:
    """Return the integrated gradients of the inputs on the line from `start`, and the conductance
    of each module.
    """
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    mean, through = jnp.zeros_like(start), jnp.zeros(len(names))
    for node, weight in zip((nodes + 1) / 2, weights / 2):
        found = _gradients(run, names, source, start + float(node) * along, along)
        mean = mean + float(weight) * found.by_point
        through = through + float(weight) * found.gained
    return mean * along, through


def _completeness(result: float, expected: float, steps: int) -> list[str]:
    """Return a note if the attributions do not add up to the difference of the metric."""
    if abs(result - expected) <= 0.01 * max(abs(result), abs(expected)):
        return []
    return [
        f"the attributions of the inputs add up to {format_number(result)}, the metric differs by "
        f"{format_number(expected)}: {steps} steps are too few, or the baseline is unsuitable"
    ]


def _embedding(run: Run, modules: Mapping[str, Any]) -> str:
    """Return the path of the embedding: the first module without children that returns a vector for
    each entry of the input.
    """
    for name, module in modules.items():
        is_leaf = not any(True for _ in module.children())
        if is_leaf and run.before.returns[name].ndim == run.arrays[0].ndim + 1:
            return name
    raise ArgumentError(
        f"the first input of {type(run.model).__name__} is {run.arrays[0].dtype}, which has no "
        "gradient, and no module makes a vector of each entry."
    )


class _GradientAtPoint(NamedTuple):
    """The gradient of the metric at one point.

    Attributes:
        metric: The metric there.
        by_point: Its gradient by the input, or by the return of the embedding.
        by_return: Its gradient by the return of each module.
        gained: The derivative through each return in the direction; None without a direction.
    """

    metric: Any
    by_point: Any
    by_return: list[Any]
    gained: Any


def _gradients(
    run: Run, names: list[str], source: str, point: object, direction: object = None
) -> _GradientAtPoint:
    """Return the gradient at a point, which is the input, or the return of `source`."""
    returns = [run.before.returns[name] for name in names]
    return run.call(_gradient_function, (source, *names), point, direction, returns)


def _gradient_function(plan: RunPlan, source: str, *names: str) -> Callable[..., _GradientAtPoint]:
    settings = tuple((name, Setting("example" if name == source else "add")) for name in names)

    def gradients(
        model: CoreModule,
        arrays: list[Any],
        target: Any,
        point: Any,
        direction: Any,
        before: list[Any],
    ) -> _GradientAtPoint:
        def forward(inputs: Any) -> tuple[Any, list[Any]]:
            """Return the metric and the returns, given the point and an addend for each return."""
            point, adds = inputs
            numbers = [
                numbers_of(setting._replace(values=(point if name == source else add,)))
                for (name, setting), add in zip(settings, adds)
            ]
            new_arrays = arrays if source else [point, *arrays[1:]]
            result = plan.run(model, new_arrays, target, settings, numbers)
            return result.metric, [result.returns[name] for name in names]

        adds = list(map(jnp.zeros_like, before))
        (metric, _), (by_point, by_return) = jax.value_and_grad(forward, has_aux=True)(
            (point, adds)
        )
        if source:
            by_return[names.index(source)] = by_point
        if direction is None:
            return _GradientAtPoint(metric, by_point, by_return, None)
        moved = jax.jvp(lambda point: forward((point, adds))[1], (point,), (direction,))[1]
        gained = jnp.array([(by * move).sum() for by, move in zip(by_return, moved)])
        return _GradientAtPoint(metric, by_point, by_return, gained)

    return gradients


def _direct(
    run: Run, stream: object, components: object, heads: bool, labels: Sequence[str]
) -> Attribution:
    if stream is None or components is None:
        raise ArgumentError(
            "method='direct' needs stream=, the module that reads the last residual stream (the "
            "last norm), and components=, those that write into it, as in stream='norm', "
            "components=['embed', 'blocks.*.attention', 'blocks.*.mlp']."
        )
    (reader,) = targets(run.model, stream)
    entries = entries_of("components", components)
    writers = {t.name: t.module for entry in entries for t in targets(run.model, entry)}
    chosen = [name for name in run.calls if name in writers]
    if not chosen or reader.name not in run.before.returns:
        raise PathError(
            "the stream, or all of its components, did not run: there is no component to attribute "
            "to."
        )
    source = "" if is_floating(run.arrays[0]) else reader.name
    point = run.before.returns[source] if source else run.arrays[0]
    (by_return,) = _gradients(run, [reader.name], source, point).by_return
    joined = {name: heads_of(writers[name]) for name in chosen if heads}
    places = {reader.module, *(projection for _, projection in joined.values())} - {None}
    met = record_at(run.model, None, run.args, {(place, True) for place in places}, run.kwargs)
    rest = r = met[reader.module, True][0][0]
    parts: dict[str, Any] = {}
    for name in chosen:
        written = run.before.returns[name]
        if written.shape != r.shape:
            raise ShapeError(
                f'"{name}" returns {list(written.shape)}, the stream is {list(r.shape)}: it '
                f"does not write into it."
            )
        rest = rest - written
        count, projection = joined.get(name, (0, None))
        if projection is None:
            parts[name] = written
            continue
        by_head = _by_head(met[projection, True][0][0], projection, count)
        parts |= {f"{name} head {h}": part for h, part in enumerate(by_head)}
        if getattr(projection, "bias", None) is not None:
            parts[f"{name} bias"] = written - sum(by_head)
    parts["rest of the stream"] = rest
    through = _linear_part(reader.module, r)
    results = {name: float((by_return * through(part)).sum()) for name, part in parts.items()}
    metric = float(run.before.metric)
    results["biases after it"] = metric - sum(results.values())
    return Attribution(type(run.model).__name__, "direct", metric, None, results, labels=labels)


def _by_head(z: Array, projection: Any, count: int) -> list[Any]:
    width = z.shape[-1] // count
    weight = projection.weight.value
    cut = [slice(h * width, (h + 1) * width) for h in range(count)]
    return [z[..., at] @ weight[:, at].T for at in cut]


def _linear_part(module: CoreModule, r: Any) -> Callable[[Any], Any]:
    """Return the linear map of the reader of the stream: a norm with its scale held constant, any
    other module by its derivative.
    """
    cls = type(module).__name__
    if cls in ("LayerNorm", "RMSNorm") and hasattr(module, "eps"):
        axes = tuple(range(r.ndim - len(getattr(module, "normalized_shape", (0,))), r.ndim))
        middle = (
            (lambda x: x - x.mean(axes, keepdims=True)) if cls == "LayerNorm" else (lambda x: x)
        )
        eps = getattr(module, "eps")  # noqa: B009
        scale = jax.lax.rsqrt((middle(r) ** 2).mean(axes, keepdims=True) + eps)
        weight = getattr(module, "weight", None)
        return lambda part: middle(part) * scale * (1.0 if weight is None else weight.value)
    return lambda part: jax.jvp(lambda x: module(x), (r,), (part,))[1]


__all__ = ["Attribution", "attribute"]
