"""What holds for all functions: the dtype stays that of the inputs, and the documentation is
complete.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentTypeError, DtypeError
from nbmodule.nn import functional as F
from tests.nn.functional.calls import CASES, row

FLOATS = (np.float32, np.float64)

IMAGE, VECTOR, ROWS, SEQUENCE = (2, 6, 6, 4), (4,), (2, 4), (2, 3, 4)
DRAW = {"rate": 0.3, "key": np.array([0, 1], np.uint32)}
OTHERS = [
    row("linear", ROWS, (3, 4), (3,)),
    row("bilinear", ROWS, ROWS, (3, 4, 4)),
    row("embedding", np.array([1, 0]), (3, 4), padding_idx=0, max_norm=0.5),
    row("batch_norm", IMAGE, VECTOR, VECTOR, VECTOR, VECTOR),
    row("batch_norm_train", IMAGE, VECTOR, VECTOR, VECTOR, VECTOR),
    row("layer_norm", IMAGE, VECTOR, VECTOR, new_std=2.0),
    row("avg_pool2d", IMAGE, kernel_size=3, padding=1, count_include_pad=False),
    row("dropout", ROWS, **DRAW),
    row("alpha_dropout", ROWS, **DRAW),
    row("group_norm", IMAGE, num_groups=2, weight=np.ones(4)),
    row("multi_head_attention", *[SEQUENCE] * 3, num_heads=2, mask=np.ones((3, 3))),
    row("lstm", SEQUENCE, None, (8, 4), (8, 2), (8,), lengths=np.array([2, 1])),
    row("gru", SEQUENCE, None, (6, 4), (6, 2)),
    row("rotary_embedding", SEQUENCE),
    row("cross_entropy", ROWS, np.array([0, 2]), weight=np.ones(4), label_smoothing=0.1),
    row("binary_cross_entropy", ROWS, np.ones(ROWS, bool), label_smoothing=0.1),
    row("kl_div", ROWS, ROWS, from_logits=True),
    row("mse_loss", ROWS, np.ones(ROWS, int)),
    row("cosine_loss", ROWS, ROWS),
    row("dct", ROWS, norm="ortho"),
]
ROW_OF = {name: (arrays, options) for name, arrays, options in [*CASES, *OTHERS]}


def function_of(name):
    """A function of the floating arrays of a row, and their shapes."""
    arrays, options = ROW_OF[name]
    arrays = [np.ones(x, "f") if isinstance(x, tuple) else x for x in arrays]
    given = {str(i): x for i, x in enumerate(arrays)} | options
    shapes = {key: np.shape(x) for key, x in given.items() if getattr(x, "dtype", None) in FLOATS}

    def fn(floating):
        values = given | floating
        positional = [values.pop(str(i)) for i in range(len(arrays))]
        return getattr(F, name)(*positional, **values)

    return fn, shapes


def with_pullback(fn):
    """The values of a function, and its gradient by all arguments where each value counts the same."""

    def call(*args):
        outputs, pull = jax.vjp(fn, *args)
        return outputs, pull(jax.tree.map(jnp.ones_like, outputs))

    return call


@pytest.mark.parametrize("promotion", ["standard", "strict"])
@pytest.mark.parametrize("name", ROW_OF)
def test_the_dtype_stays_in_values_and_gradients_also_where_jax_refuses_to_mix(name, promotion):
    fn, shapes = function_of(name)
    with jax.enable_x64(True), jax.numpy_dtype_promotion(promotion):
        for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
            floating = {key: jax.ShapeDtypeStruct(shape, dtype) for key, shape in shapes.items()}
            outputs = jax.eval_shape(with_pullback(fn), floating)
            assert {x.dtype for x in jax.tree.leaves(outputs)} == {jnp.dtype(dtype)}


HOLDING_CALLS = {"dropout", "alpha_dropout", "binary_cross_entropy", "dct"}  # of JAX's own


@pytest.mark.parametrize("name", sorted(set(ROW_OF) - HOLDING_CALLS))
def test_the_program_holds_no_nested_call(name):
    fn, shapes = function_of(name)
    program = jax.make_jaxpr(fn)({key: jnp.ones(shape) for key, shape in shapes.items()})
    assert not {"jit", "pjit", "custom_jvp_call"} & {e.primitive.name for e in program.eqns}


GIVEN = {
    "Float": (jnp.ones(2), jnp.ones(2, int), "floating values"),
    "Real": (jnp.ones(2), jnp.ones(2, complex), "real values"),
    "Inexact": (jnp.ones(2), jnp.ones(2, int), "floating or complex values"),
    "Integer": (jnp.ones(2, int), jnp.ones(2), "integers"),
}


def wrong_arguments():
    """A function, arguments of which one is of the wrong kind, its name, and what is wanted."""
    for name in sorted(F.__all__):
        parameters = inspect.signature(getattr(F, name)).parameters.values()
        kinds = {p.name: str(p.annotation).partition("[")[0] for p in parameters}
        given = {
            p.name: GIVEN[kinds[p.name]][0] if kinds[p.name] in GIVEN else 1
            for p in parameters
            if p.default is p.empty
        }
        for argument, kind in kinds.items():
            is_pair = argument in ("prediction", "target") and "target" in kinds  # swapped, it says
            if kind in GIVEN and not is_pair:
                yield name, given | {argument: GIVEN[kind][1]}, argument, GIVEN[kind][2]
            elif kind == "bool":
                yield name, given | {argument: "no"}, argument, None


@pytest.mark.parametrize(("name", "given", "argument", "wanted"), list(wrong_arguments()))
def test_an_argument_of_the_wrong_kind_is_refused_by_name(name, given, argument, wanted):
    said = "True or False" if wanted is None else f"hold {wanted}, got"
    verb = "must be" if wanted is None else "must"
    with pytest.raises((DtypeError, ArgumentTypeError), match=f"^{name}: {argument} {verb} {said}"):
        getattr(F, name)(**given)


@pytest.mark.parametrize("name", sorted(F.__all__))
def test_the_documentation_shows_an_example_and_tells_every_argument(name):
    fn = getattr(F, name)
    told = inspect.getdoc(fn)  # Python 3.13 keeps no indentation
    assert ">>> " in told
    if "Args:" in told:
        assert [a for a in inspect.signature(fn).parameters if f"\n    {a}: " not in told] == []
