"""An `AttributeError` inside a property says what is missing there, on every class of ours that
answers for missing names.
"""

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.live.run_data.history import History


def with_property(kind):
    """A class below `kind` with a property that reads a misspelled name."""

    def outcome(self):
        return jnp.ones(2).shpae

    return type(
        f"Own{kind.__name__}",
        (kind,),
        {"outcome": property(outcome), "again": property(lambda self: self.outcome)},
    )


MAKE = {
    "Module": lambda: with_property(nb.Module)(),
    "Sequential": lambda: with_property(nb.Sequential)(nb.Linear(2, 2)),
    "Container": lambda: with_property(nb.Container)({"a": jnp.ones(2)}),
    "empty Container": lambda: with_property(nb.Container)(),
    "Parameter": lambda: with_property(nb.Parameter)(jnp.ones(2)),
    "Buffer": lambda: with_property(nb.Buffer)(jnp.ones(2)),
    "Optimizer": lambda: with_property(nb.SGD)(0.1),
    "History": lambda: with_property(History)(),
    "RandomStream": lambda: with_property(nb.RandomStream)(),
}


@pytest.mark.parametrize("name", list(MAKE))
@pytest.mark.parametrize("asked", ["outcome", "again"])
def test_a_property_that_fails_names_what_it_missed(name, asked):
    thing = MAKE[name]()
    with pytest.raises(AttributeError, match="has no attribute 'shpae'") as caught:
        getattr(thing, asked)
    assert not hasattr(thing, asked)
    assert asked not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in MAKE if name != "RandomStream"])
def test_a_name_that_is_missing_is_still_named(name):
    with pytest.raises(AttributeError, match="outcmoe"):
        MAKE[name]().outcmoe
