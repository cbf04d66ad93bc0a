"""Read a jaxpr into nodes and nested groups. This is the one file that knows what a jaxpr looks
like.

Compiled functions, checkpoints and custom derivatives are transparent: their inside is connected
straight to what is outside, and only a group remembers them. Loops and branches change what a value
means (one step of many, one case of several), so they have ends of their own: `carry`, `slice`,
`carried`, `stack`, `select`, `condition`. Anything else that holds a jaxpr (`shard_map`, say) is
opaque: shown from inside, evaluated as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
from jax.typing import DTypeLike

from nbmodule.base.flops import estimate
from nbmodule.base.jax_names import (
    WRAPPERS,
    jaxprs_in_params,
    line_of_user,
    scan_counts,
    source_info_util,
)
from nbmodule.base.jax_names import Literal as LiteralAtom
from nbmodule.base.scopes import LAYERS, Scope, marks_in, read_scopes
from nbmodule.graphs.model import Group, Literal, Ref, Source, Value
from nbmodule.graphs.reading.builder import Builder, Chain, Operand
from nbmodule.graphs.reading.function_calls import FunctionFinder

SPLICED = frozenset({"jit", "call", "custom_jvp", "custom_vjp"})  # no group for a single operation
LOOPS = {"scan": "_scan", "while": "_while", "cond": "_cond"}
_FUNCTIONS = os.path.join(LAYERS, "functional") + os.sep


class EquationSite(NamedTuple):
    """The place of an equation: JAX's record, and the place of the equation that holds it."""

    source_info: Any
    outer: EquationSite | None


def locate(where: EquationSite | None) -> Source | None:
    """The innermost line of user code of an equation, else of the equations around it; of a model
    of ready layers alone the line of the layer, rather than that of a function it calls; None where
    there is none.
    """
    frames: list[Any] = []
    while where is not None:
        result = line_of_user(where.source_info)
        if result:
            return Source(*result)
        frames += getattr(where.source_info.traceback, "frames", ())
        where = where.outer
    layers = [frame for frame in frames if is_layer_file(frame.file_name)]
    layers.sort(key=lambda frame: frame.file_name.startswith(_FUNCTIONS))
    return (
        Source(layers[0].file_name, layers[0].line_num, layers[0].function_name) if layers else None
    )


def is_layer_file(name: str) -> bool:
    """Return True if a file holds ready layers of this package."""
    return name.startswith(LAYERS) and os.path.basename(name) != "kernel.py"


@lru_cache(maxsize=4096)
def _value(shape: tuple[int, ...], dtype: DTypeLike) -> Value:
    return Value(tuple(shape), str(dtype), getattr(dtype, "itemsize", 4))


def shape_and_dtype(aval: object) -> Value:
    """Shape and dtype of an abstract value; a token or reference without them is empty."""
    inner = getattr(aval, "inner_aval", aval)
    return _value(getattr(inner, "shape", ()), getattr(inner, "dtype", type(aval).__name__))


def _literal(atom: Any) -> Literal:
    aval = shape_and_dtype(atom.aval)
    value = atom.val.item() if aval.shape == () and hasattr(atom.val, "item") else atom.val
    text = str(aval)
    if isinstance(value, (bool, int, complex)):
        text = str(value)
    elif isinstance(value, float):
        text = f"{value:.6g}"
    return Literal(text, atom.val, aval.dtype)


def _plain(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """The open jaxpr and its constants, of a closed or an open one."""
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def _function_name(equation: Any, inner: Any) -> str:
    name = equation.params.get("name") or getattr(inner.debug_info, "func_name", "")
    if name in ("<lambda>", "<unnamed function>"):
        return "lambda"
    return str(name or equation.primitive.name).lstrip("_")


def _is_single(jaxpr: object) -> bool:
    """Return True if this jaxpr becomes at most one operation, also through wrappers."""
    inner, _ = _plain(jaxpr)
    if len(inner.eqns) != 1:
        return not inner.eqns
    equation = inner.eqns[0]
    name = equation.primitive.name
    if name in WRAPPERS:
        return WRAPPERS[name][1] in SPLICED and _is_single(equation.params[WRAPPERS[name][0]])
    return name not in LOOPS and _opaque_body(equation) is None


def wraps_one_call(jaxpr: object) -> bool:
    """Return True if a jaxpr only calls one compiled function; one group is enough for both."""
    inner, _ = _plain(jaxpr)
    if len(inner.eqns) != 1:
        return False
    equation = inner.eqns[0]
    return equation.primitive.name in ("jit", "pjit") and not len(equation.source_info.name_stack)


def _opaque_body(equation: Any) -> Any:
    """The jaxpr inside an unknown primitive, if its ends fit those of the equation; else None."""
    values = [getattr(value, "jaxpr", value) for value in equation.params.values()]
    bodies = [value for value in values if hasattr(value, "eqns")]
    if len(bodies) != 1 or len(bodies[0].eqns) < 2:
        return None
    ends = [(len(one.invars), len(one.outvars)) for one in (bodies[0], equation)]
    return bodies[0] if ends[0] == ends[1] else None


def count_equations(jaxpr: object) -> int:
    """Count the equations of a jaxpr, those inside of others included."""
    inner, _ = _plain(jaxpr)
    total = len(inner.eqns)
    for equation in inner.eqns:
        total += sum(map(count_equations, jaxprs_in_params(equation.params)))
    return total


def scopes_now() -> tuple[Scope, ...]:
    """Return the scopes in which an operation would be recorded now."""
    return read_scopes(marks_in(source_info_util.current_name_stack().stack))[0]


class Reader(Builder):
    """Builds nodes and groups while walking through a jaxpr."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: dict[int, tuple[Ref, Any]] = {}
        self.effects: set[int] = set()
        """Nodes that act on the world (prints, callbacks, writes into references)."""
        self._where: EquationSite | None = None
        self._finder = FunctionFinder()

    def constant(self, value: object) -> Ref:
        """The node of an array that the function closes over; one node for each array."""
        if id(value) not in self.constants:
            shape = shape_and_dtype(jax.typeof(value))
            ref = self.add(self.root, "constant", "constant", (), (shape,), name="constant")
            self.constants[id(value)] = (ref, value)
        return self.constants[id(value)][0]

    def read(
        self,
        jaxpr: object,
        inputs: Sequence[Operand],
        base: Group,
        within: str = "",
        merged: bool = False,
    ) -> list[Operand]:
        """Walk through a jaxpr inside a group; give the operands that stand for its results.

        Args:
            jaxpr: Open or closed.
            inputs: The operands of its arguments.
            base: The group that its equations are added to.
            within: Name of a wrapper that got no group of its own.
            merged: The one call inside shares the group of its wrapper.
        """
        inner, consts = _plain(jaxpr)
        env: dict[Any, Operand] = dict(zip(inner.invars, inputs, strict=True))
        env.update(zip(inner.constvars, map(self.constant, consts), strict=True))
        chain: Chain = []

        def operand(atom: Any) -> Operand:
            return _literal(atom) if isinstance(atom, LiteralAtom) else env[atom]

        outer = self._where
        stacks = [marks_in(equation.source_info.name_stack.stack) for equation in inner.eqns]
        scopes = [read_scopes(stack, base.phase) for stack in stacks]
        functions = self._finder.find(inner.eqns, scopes)
        for equation, stack, called in zip(inner.eqns, stacks, functions, strict=True):
            operands = list(map(operand, equation.invars))
            group, phase = self.enter(base, chain, stack, operands, called)
            self._where = EquationSite(equation.source_info, outer)
            primitive, body = equation.primitive.name, _opaque_body(equation)
            if primitive in WRAPPERS:
                results = self._transparent(equation, operands, group, phase, within, merged)
            elif primitive in LOOPS:
                results = getattr(self, LOOPS[primitive])(equation, operands, group, phase)
            elif body is not None:
                results = self._opaque(equation, body, operands, group, phase)
            else:
                results = self._operation(equation, operands, group, phase, within)
            env.update(zip(equation.outvars, results, strict=True))
        self._where = outer
        return list(map(operand, inner.outvars))

    def _operation(
        self, equation: Any, operands: list[Operand], group: Group, phase: str, within: str
    ) -> list[Operand]:
        name, params = equation.primitive.name, equation.params
        outputs = tuple(shape_and_dtype(v.aval) for v in equation.outvars)
        supplied = [shape_and_dtype(v.aval) for v in equation.invars]
        words = [x.text for x in operands if isinstance(x, Literal)]
        words += [describe_parameters(name, params), f"in {within}" if within else ""]
        ref = self.add(
            group,
            name,
            "operation",
            operands,
            outputs,
            phase=phase,
            parameters=", ".join(filter(None, words)),
            flops=estimate(name, params, supplied, outputs),
            bytes=sum(v.bytes for v in (*supplied, *outputs)),
            _locate=partial(locate, self._where),
            _equation=equation,
        )
        if equation.effects:
            self.effects.add(ref.node)
        return [Ref(ref.node, i) for i in range(len(outputs))]

    def _transparent(self, equation, operands, group, phase, within, merged) -> list[Operand]:
        parameter, category = WRAPPERS[equation.primitive.name]
        body = equation.params[parameter]
        name = _function_name(equation, _plain(body)[0])
        if merged or (category in SPLICED and phase == group.phase and _is_single(body)):
            return self.read(body, operands, group, within or ("" if merged else name))
        inner = self.open(group, name, category, phase)
        return self.read(body, operands, inner, merged=wraps_one_call(body))

    def _ends(
        self,
        group: Group,
        role: str,
        operation: str,
        operands: Sequence[Operand],
        variables: Sequence[Any],
    ) -> list[Operand]:
        """Add one node of a role for each operand that enters or leaves a loop, branch or call."""
        ends: list[Operand] = [
            self.add(group, operation, role, [x], [shape_and_dtype(v.aval)])
            for x, v in zip(operands, variables, strict=True)
        ]
        if ends:
            group.ports[role] = tuple(end.node for end in ends if isinstance(end, Ref))
        return ends

    def _scan(self, equation, operands, group, phase) -> list[Operand]:
        params = equation.params
        fixed, carried = scan_counts(params)
        body, first_slice = params["jaxpr"], fixed + carried
        name = "reversed scan" if params["reverse"] else "scan"
        inner = self.open(group, name, "scan", phase, params["length"])
        inner._equation = equation
        starts = body.jaxpr.invars[fixed:first_slice]
        carry = self._ends(inner, "carry", "carry in", operands[fixed:first_slice], starts)
        elements = body.jaxpr.invars[first_slice:]
        slices = self._ends(inner, "slice", "slice", operands[first_slice:], elements)
        results = self.read(body, [*operands[:fixed], *carry, *slices], inner)
        outs = equation.outvars
        after = self._ends(inner, "carried", "carry out", results[:carried], outs[:carried])
        return after + self._ends(inner, "stack", "stack", results[carried:], outs[carried:])

    def _while(self, equation, operands, group, phase) -> list[Operand]:
        params, outs = equation.params, equation.outvars
        tests, fixed = params["cond_nconsts"], params["body_nconsts"]
        inner = self.open(group, "while", "while", phase)
        carry = self._ends(inner, "carry", "carry in", operands[tests + fixed :], outs)
        test = self.open(inner, "condition", "condition")
        (decision,) = self.read(params["cond_jaxpr"], [*operands[:tests], *carry], test)
        decided = self.add(test, "go on if", "condition", [decision], [Value((), "bool", 1)])
        inner.ports["condition"] = (decided.node,)
        body = self.open(inner, "body", "body")
        results = self.read(params["body_jaxpr"], [*operands[tests : tests + fixed], *carry], body)
        return self._ends(inner, "carried", "carry out", results, outs)

    def _cond(self, equation, operands, group, phase) -> list[Operand]:
        branches = equation.params["branches"]
        is_pair = len(branches) == 2
        inner = self.open(group, "cond" if is_pair else "switch", "cond", phase)
        results = []
        for i, branch in enumerate(branches):
            name = ("if false", "if true")[i] if is_pair else f"case {i}"
            body = self.open(inner, name, "branch")
            results.append(self.read(branch, operands[1:], body))
        chosen = []
        for i, variable in enumerate(equation.outvars):
            inputs = [operands[0], *(result[i] for result in results)]
            value = shape_and_dtype(variable.aval)
            chosen.append(self.add(inner, "select", "select", inputs, [value]))
        if chosen:
            inner.ports["select"] = tuple(ref.node for ref in chosen)
        return list(chosen)

    def _opaque(self, equation, body, operands, group, phase) -> list[Operand]:
        inner = self.open(group, _function_name(equation, body), "opaque", phase)
        inner._equation = equation
        arguments = self._ends(inner, "argument", "argument", operands, body.invars)
        results = self.read(body, arguments, inner)
        return self._ends(inner, "result", "result", results, equation.outvars)


# -- what a primitive is given besides its operands --
# Letters of the text.
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
            words.append(name if value is True else f"{name} {_spaced(value)}")
    return ", ".join(words)


def _spaced(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _dot_general(params: Mapping[str, Any]) -> str:
    (left, right), (batch, _) = params["dimension_numbers"]
    text = f"axes {_spaced(tuple(left))}·{_spaced(tuple(right))}"
    return f"{text}, batch {_spaced(tuple(batch))}" if batch else text


def _slice(params: Mapping[str, Any]) -> str:
    strides = params.get("strides") or (1,) * len(params["start_indices"])
    parts = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return ", ".join(f"{a}:{b}" + (f":{s}" if s != 1 else "") for a, b, s in parts)


def _convolution(params: Mapping[str, Any]) -> str:
    words = []
    if set(params["window_strides"]) != {1}:
        words.append(f"stride {_spaced(tuple(params['window_strides']))}")
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
    "transpose": lambda p: _spaced(tuple(p["permutation"])),
    "reshape": lambda p: f"[{', '.join(map(str, p['new_sizes']))}]",
    "broadcast_in_dim": lambda p: f"[{', '.join(map(str, p['shape']))}]",
    "slice": _slice,
    "pad": lambda p: " ".join(
        f"{low}+{high}" + (f"+{mid}" if mid else "") for low, high, mid in p["padding_config"]
    ),
}
