"""The checks at the head of kernels: each meets arrays, Python numbers and NumPy scalars with
acceptance or an error of ours.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentTypeError, DtypeError, ShapeError
from nbmodule.nn.checks import (
    check_arrays,
    check_floating,
    check_inexact,
    check_integers,
    check_rank,
    check_real,
    check_shape,
    refuse_swapped,
)

# Python's numbers, then NumPy's scalars: what stands for one number, how it is spelled, and which
# kinds it is of.
NUMBERS = [
    (3j, "complex", {"inexact"}),
    (2.0, "float", {"floating", "inexact", "real"}),
    (2, "int", {"integers", "real"}),
    (True, "bool", {"real"}),
    (np.complex64(3j), "complex64[]", {"inexact"}),
    (np.float32(2), "float32[]", {"floating", "inexact", "real"}),
    (np.int8(2), "int8[]", {"integers", "real"}),
    (np.bool_(True), "bool[]", {"real"}),
    (jnp.float32(2), "float32[]", {"floating", "inexact", "real"}),
]
KINDS = {
    "floating": (check_floating, "floating values"),
    "inexact": (check_inexact, "floating or complex values"),
    "integers": (check_integers, "integers"),
    "real": (check_real, "real values"),
}


@pytest.mark.parametrize(
    ("number", "spelled", "kinds"), NUMBERS, ids=[f"{type(n).__name__}-{s}" for n, s, _ in NUMBERS]
)
def test_a_number_is_accepted_or_refused_by_its_kind(number, spelled, kinds):
    assert check_arrays("f", x=number) == {"x": number}
    for kind, (check, wanted) in KINDS.items():
        if kind in kinds:
            check("f", x=number)
            continue
        with pytest.raises(DtypeError) as caught:
            check("f", x=number)
        assert str(caught.value).startswith(f"f: x must hold {wanted}, got {spelled}.")


@pytest.mark.parametrize(
    ("number", "spelled", "kinds"), NUMBERS, ids=[f"{type(n).__name__}-{s}" for n, s, _ in NUMBERS]
)
def test_a_number_has_no_axes(number, spelled, kinds):
    check_rank("f", "x", number, "()", 0)
    check_shape("f", "x", number, (), "one number")
    with pytest.raises(ShapeError) as caught:
        check_rank("f", "x", number, "(*batch, features)", 1)
    assert str(caught.value) == f"f: x must have axes (*batch, features), got {spelled}."
    with pytest.raises(ShapeError) as caught:
        check_shape("f", "x", number, (2,), "one for each")
    assert str(caught.value) == f"f: x must have shape [2] (one for each), got {spelled}."


@pytest.mark.parametrize("check", [check_arrays, *(check for check, _ in KINDS.values())])
def test_what_is_no_number_is_named(check):
    with pytest.raises(ArgumentTypeError, match="^f: x must be an array, got str.$"):
        check("f", x="2")


def test_a_swapped_pair_of_numbers_is_refused_by_name():
    with pytest.raises(ValueError, match="prediction int and target float look swapped"):
        refuse_swapped("f", 3, 2.0)
