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

IMAGE, KERNEL, VECTOR, ROWS = (2, 6, 6, 4), (4, 3, 3, 4), (4,), (2, 4)
CALLS = {
    "linear": (lambda x, w, b: F.linear(x, w, b), [ROWS, (3, 4), (3,)]),
    "bilinear": (F.bilinear, [ROWS, ROWS, (3, 4, 4)]),
    "embedding": (
        lambda w: F.embedding(jnp.array([1, 0]), w, padding_idx=0, max_norm=0.5),
        [(3, 4)],
    ),
    "conv2d": (F.conv2d, [IMAGE, KERNEL, VECTOR]),
    "depthwise_conv2d": (F.depthwise_conv2d, [IMAGE, (4, 3, 3, 1), VECTOR]),
    "conv_transpose2d": (lambda *a: F.conv_transpose2d(*a, stride=2), [IMAGE, KERNEL, VECTOR]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2, padding=1), [IMAGE]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, padding=1, count_include_pad=False), [IMAGE]),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 4), [IMAGE]),
    "interpolate": (lambda x: F.interpolate(x, 9, mode="bicubic"), [IMAGE]),
    "batch_norm": (F.batch_norm, [IMAGE, VECTOR, VECTOR, VECTOR, VECTOR]),
    "batch_norm_train": (
        lambda *a: F.batch_norm_train(*a),
        [IMAGE, VECTOR, VECTOR, VECTOR, VECTOR],
    ),
    "layer_norm": (lambda *a: F.layer_norm(*a, new_std=2.0), [IMAGE, VECTOR, VECTOR]),
    "rms_norm": (F.rms_norm, [IMAGE, VECTOR]),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), [IMAGE, VECTOR]),
    "instance_norm": (F.instance_norm, [IMAGE]),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3), [IMAGE]),
    "dropout": (lambda x: F.dropout(x, 0.3, np.array([0, 1], np.uint32)), [ROWS]),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.3, np.array([0, 1], np.uint32)), [ROWS]),
    "attention": (
        lambda q, m: F.multi_head_attention(q, q, q, 2, m, return_weights=True),
        [(2, 3, 4), (3, 3)],
    ),
    "lstm": (
        lambda x, a, b, c: F.lstm(x, None, a, b, c, lengths=jnp.array([2, 1])),
        [(2, 3, 4), (8, 4), (8, 2), (8,)],
    ),
    "gru": (lambda x, a, b: F.gru(x, None, a, b), [(2, 3, 4), (6, 4), (6, 2)]),
    "rotary_embedding": (F.rotary_embedding, [(2, 3, 4)]),
    "cross_entropy": (
        lambda x, w: F.cross_entropy(x, jnp.array([0, 2]), weight=w, label_smoothing=0.1),
        [ROWS, VECTOR],
    ),
    "binary_cross_entropy": (
        lambda x: F.binary_cross_entropy(x, jnp.ones(ROWS, bool), label_smoothing=0.1),
        [ROWS],
    ),
    "kl_div": (lambda x, t: F.kl_div(x, t, from_logits=True), [ROWS, ROWS]),
    "mse_loss": (lambda x: F.mse_loss(x, jnp.ones(ROWS, int)), [ROWS]),
    "huber_loss": (F.huber_loss, [ROWS, ROWS]),
    "log_poisson_loss": (lambda x: F.log_poisson_loss(x, jnp.ones(ROWS, int), full=True), [ROWS]),
    "cosine_loss": (F.cosine_loss, [ROWS, ROWS]),
    "dct": (lambda x: F.dct(x, norm="ortho"), [ROWS]),
    "gelu": (lambda x: F.gelu(x, approximate=True), [ROWS]),
    "softplus": (lambda x: F.softplus(x, beta=2.0), [ROWS]),
    "selu": (F.selu, [ROWS]),
    "geglu": (F.geglu, [ROWS]),
    "log_softmax": (F.log_softmax, [ROWS]),
}


def with_pullback(fn):
    """The values of a function, and its gradient by all arguments where each value counts the same."""

    def call(*args):
        outputs, pull = jax.vjp(fn, *args)
        return outputs, pull(jax.tree.map(jnp.ones_like, outputs))

    return call


@pytest.mark.parametrize("promotion", ["standard", "strict"])
@pytest.mark.parametrize("name", CALLS)
def test_the_dtype_stays_in_values_and_gradients_also_where_jax_refuses_to_mix(name, promotion):
    fn, shapes = CALLS[name]
    with jax.enable_x64(True), jax.numpy_dtype_promotion(promotion):
        for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
            outputs = jax.eval_shape(
                with_pullback(fn), *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
            )
            assert {x.dtype for x in jax.tree.leaves(outputs)} == {jnp.dtype(dtype)}


HOLDING_CALLS = {"dropout", "alpha_dropout", "binary_cross_entropy", "dct"}  # of JAX's own


@pytest.mark.parametrize("name", sorted(set(CALLS) - HOLDING_CALLS))
def test_the_program_holds_no_nested_call(name):
    fn, shapes = CALLS[name]
    program = jax.make_jaxpr(fn)(*(jnp.ones(shape) for shape in shapes))
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
