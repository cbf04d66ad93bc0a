"""Whatever stands around a function that is compiled, be it a proxy, a maze or a liar: looking at it changes and stops nothing."""

import asyncio
import collections
import contextvars
import dataclasses
import decimal
import io
import itertools
import logging
import pathlib
import queue
import random
import re
import sys
import threading
import types
import weakref
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

X = jnp.ones((2, 3))


class AnyName:
    """A proxy that answers every name by another proxy."""

    def __getattr__(self, name):
        return AnyName()

    def __call__(self, *_):
        return AnyName()


class Raises:
    """A proxy of something that is not there: any name raises, and no `AttributeError`."""

    def __getattr__(self, name):
        raise RuntimeError("outside of its context")


class RaisesDict:
    @property
    def __dict__(self):
        raise RuntimeError("no attributes today")


class RaisesComparison:
    def __eq__(self, other):
        raise RuntimeError("not comparable")

    def __hash__(self):
        raise RuntimeError("not hashable")


class RaisesItems(dict):
    def items(self):
        raise RuntimeError("no items today")

    values = __iter__ = items


class RaisesLength(list):
    def __len__(self):
        raise RuntimeError("no length today")

    __iter__ = __len__


class Slots:
    __slots__ = ("one", "two")


@dataclasses.dataclass(slots=True)
class Settings:
    rate: float = 0.1


class Node:
    def __init__(self, following):
        self.following = following


def chain(length, link):
    found = None
    for _ in range(length):
        found = link(found)
    return found


def holding_itself(kind):
    found = kind()
    found.append(found) if kind is list else found.update(itself=found)
    return found


STRANGE = {
    "answers every name": AnyName,
    "mock": mock.MagicMock,
    "raises at every name": Raises,
    "raises at its attributes": RaisesDict,
    "raises when compared": RaisesComparison,
    "dict that raises": RaisesItems,
    "list that raises": RaisesLength,
    "empty slots": Slots,
    "dataclass with slots": Settings,
    "a list in a list in a list": lambda: chain(3000, lambda found: [found]),
    "linked objects": lambda: chain(3000, Node),
    "functions within functions": lambda: chain(500, lambda found: lambda: found),
    "partials within each other": lambda: chain(500, lambda found: types.MethodType(max, found or 1)),
    "list in itself": lambda: holding_itself(list),
    "dict in itself": lambda: holding_itself(dict),
    "a million numbers": lambda: [list(range(1000)) for _ in range(1000)],
    "dict with odd keys": lambda: {("a", 1): 2, None: 3, 1.5: 4, frozenset(): 5},
    "counter": lambda: collections.Counter("abc"),
    "default dict": lambda: collections.defaultdict(list),
    "deque": lambda: collections.deque([1, 2]),
    "chain map": lambda: collections.ChainMap({}, {}),
    "generator": lambda: (each for each in range(3)),
    "endless iterator": itertools.count,
    "lock": threading.Lock,
    "thread's own": threading.local,
    "queue": queue.Queue,
    "event loop's": lambda: asyncio.Event(),
    "context variable": lambda: contextvars.ContextVar("x"),
    "weak reference": lambda: weakref.ref(Node),
    "weak dict": weakref.WeakKeyDictionary,
    "open file": io.StringIO,
    "pattern": lambda: re.compile("a+"),
    "logger": lambda: logging.getLogger("nobody"),
    "path": lambda: pathlib.Path("a"),
    "decimal": lambda: decimal.Decimal("0.1"),
    "random numbers": random.Random,
    "NumPy's random numbers": np.random.default_rng,
    "array of objects": lambda: np.array([{}, []], object),
    "array of records": lambda: np.zeros(3, [("a", "f4"), ("b", "U3")]),
    "array of no axis": lambda: np.array("text"),
    "frame of a call": sys._getframe,
    "module made by hand": lambda: types.ModuleType("made"),
    "not a number": lambda: float("nan"),
    "NotImplemented": lambda: NotImplemented,
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("where", ["global", "cell"])
def test_what_a_function_reads_never_stops_its_compilation(kind, where):
    thing, model = STRANGE[kind](), nb.Linear(3, 2)
    expected = np.asarray(model(X))
    names = {"model": model, "thing": thing}
    code = "def step(x):\n    if x is None:\n        return thing, thing.following\n    return model(x)\n"
    if where == "cell":
        code = (
            "def make(thing, model):\n" + "".join(f"    {line}\n" for line in code.splitlines()) + "    return step\n"
        )
    for _ in range(2):  # the second time a program is there that might be taken over
        exec(code, names)
        step = nb.jit(names["make"](thing, model) if where == "cell" else names["step"])
        np.testing.assert_allclose(np.asarray(step(X)), expected, rtol=1e-6)
    model.load_state_dict({name: np.zeros(array.shape, array.dtype) for name, array in model.state_dict().items()})
    np.testing.assert_array_equal(np.asarray(step(X)), np.zeros((2, 2)))
