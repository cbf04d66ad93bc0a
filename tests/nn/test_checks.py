"""The checks at the head of kernels: each meets arrays, Python numbers and NumPy scalars with
acceptance or an error of ours.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import DtypeError
from nbmodule.nn.checks import annotated_checks, check_arguments, check_array

# Python's numbers, then NumPy's scalars: what stands for one number, how it is spelled, and which
# kinds it is of.
NUMBERS = [
    (3j, "complex", {"Inexact"}),
    (2.0, "float", {"Float", "Inexact", "Real"}),
    (2, "int", {"Integer", "Real"}),
    (True, "bool", {"Real"}),
    (np.complex64(3j), "complex64[]", {"Inexact"}),
    (np.float32(2), "float32[]", {"Float", "Inexact", "Real"}),
    (np.int8(2), "int8[]", {"Integer", "Real"}),
    (np.bool_(True), "bool[]", {"Real"}),
    (jnp.float32(2), "float32[]", {"Float", "Inexact", "Real"}),
]
KINDS = {
    "Float": "floating values",
    "Inexact": "floating or complex values",
    "Integer": "integers",
    "Real": "real values",
}


def check(kind, x):
    """Check an argument that is annotated as an array of a kind."""

    def f(x): ...

    f.__annotations__ = {"x": f"{kind}[Array, '...']"}
    check_arguments(annotated_checks(f), {"x": x})


@pytest.mark.parametrize(
    ("number", "spelled", "kinds"), NUMBERS, ids=[f"{type(n).__name__}-{s}" for n, s, _ in NUMBERS]
)
def test_a_number_is_accepted_or_refused_by_its_kind(number, spelled, kinds):
    assert check_array("x", number) is None
    for kind, wanted in KINDS.items():
        if kind in kinds:
            check(kind, number)
            continue
        with pytest.raises(DtypeError) as caught:
            check(kind, number)
        assert str(caught.value).startswith(f"x must hold {wanted}, got {spelled}.")
