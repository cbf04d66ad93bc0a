"""Wrong types in every argument: a clear error of ours or of Python's, and the model is left as it
was.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

BAD = {
    "object": object(), "text": "text", "bytes": b"x", "none": None, "minus one": -1, "float": 2.5, "nan": float("nan"), "true": True,
    "list": [1, "a"], "dict": {"a": object()}, "set": {1}, "function": len, "class": int, "array": np.ones((7, 3)),
    "text array": np.array(["a"]), "key": jax.random.key(0), "complex": 1j, "ellipsis": ..., "module": nb.Module(), "variable": nb.Buffer(1.0),
}  # fmt: skip
ALLOWED = (nb.NbModuleError, TypeError, ValueError, LookupError, OverflowError)


def model():
    return nb.Sequential(nb.Linear(3, 4), nb.BatchNorm1d(4), nb.Linear(4, 2))


CALLS = {
    "v =": lambda m, x: setattr(m, "v", x),
    "call v=": lambda m, x: m(jnp.ones((2, 3)), v=x),
    "call": lambda m, x: m(x),
    "weight =": lambda m, x: setattr(m[0], "weight", x),
    "weight.value =": lambda m, x: setattr(m[0].weight, "value", x),
    "weight[0] =": lambda m, x: m[0].weight.__setitem__(0, x),
    "weight[x]": lambda m, x: m[0].weight[x],
    "load_state_dict": lambda m, x: m.load_state_dict(x),
    "load_state_dict value": lambda m, x: m.load_state_dict({"0.weight": x}, strict=False),
    "to device": lambda m, x: m.to(x),
    "to dtype": lambda m, x: m.to(dtype=x),
    "register_buffer name": lambda m, x: m.register_buffer(x, jnp.ones(1)),
    "hook": lambda m, x: m.register_forward_hook(x),
    "build_mode": lambda m, x: nb.Module(build_mode=x),
    "device": lambda m, x: nb.Module(device=x),
    "dtype": lambda m, x: nb.Module(dtype=x),
    "v": lambda m, x: nb.Linear(3, 2, v=x),
    "key": lambda m, x: nb.Linear(3, 2, key=x).weight.value,
    "jit": lambda m, x: nb.jit(x),
    "jit argument": lambda m, x: nb.jit(lambda y: m(y))(x),
    "grad": lambda m, x: nb.grad(lambda y: m(y).sum())(x),
    "execute_with_gradients": lambda m, x: nb.execute_with_gradients(
        lambda v: m(jnp.ones((2, 3)), v=v).sum(), x
    ),
    "seed": lambda m, x: nb.RandomStream(x),
    "submod_depth": lambda m, x: m(jnp.ones((2, 3)), track_submod_rets=True, submod_depth=x),
    "submods_to_track": lambda m, x: m(
        jnp.ones((2, 3)), track_submod_rets=True, submods_to_track=x
    ),
    "replace_submod_rets": lambda m, x: m(jnp.ones((2, 3)), replace_submod_rets=x),
    "top_mod": lambda m, x: m[0].top_mod(x),
    "compile": lambda m, x: m.compile(args=x),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_argument_raises_a_clear_error_and_changes_nothing(call):
    for name, bad in BAD.items():
        m = model().eval()
        before = m.state_dict()
        try:
            CALLS[call](m, bad)
        except ALLOWED:
            assert all(
                np.array_equal(array, before[key]) for key, array in m.state_dict().items()
            ), f"{call} with {name} changed the model"
        except AttributeError as error:
            if not isinstance(error, nb.NbModuleError):
                pytest.fail(f"{call} with {name}: {error!r}")


class Thing:
    """An object that cannot be called."""


TRANSFORMS = {
    "jit": lambda fn: nb.jit(fn),
    "grad": lambda fn: nb.grad(fn),
    "value_and_grad": lambda fn: nb.value_and_grad(fn),
    "execute_with_gradients": lambda fn: nb.execute_with_gradients(fn, nb.Container(w=jnp.ones(2))),
    "vmap": lambda fn: nb.vmap(fn),
    "scan": lambda fn: nb.scan(fn, 0.0, jnp.arange(3.0)),
    "cond": lambda fn: nb.cond(True, fn, lambda: 1),
    "switch": lambda fn: nb.switch(0, [fn]),
    "while_loop": lambda fn: nb.while_loop(fn, lambda x: x, 1),
    "while_loop, body": lambda fn: nb.while_loop(lambda x: x < 1, fn, 1),
    "checkpoint": lambda fn: nb.checkpoint(fn),
    "eval_shape": lambda fn: nb.eval_shape(fn),
    "make_jaxpr": lambda fn: nb.make_jaxpr(fn),
    "stack": lambda fn: nb.stack(fn, 2),
}
NO_FUNCTIONS = ["loss", Thing(), jnp.ones(2), 3.0, [len], classmethod(len)]


@pytest.mark.parametrize("given", NO_FUNCTIONS, ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_transform_of_an_object_that_is_no_function_is_refused_with_the_fix(transform, given):
    name = rf"nb\.{transform.partition(',')[0]} takes .*got {type(given).__name__}"
    with pytest.raises(nb.ArgumentTypeError, match=f"{name}.*not what it returns") as caught:
        TRANSFORMS[transform](given)
    assert isinstance(caught.value, TypeError)
