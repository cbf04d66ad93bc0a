"""Looking at a model leaves it as it was: attributes, lists, private state, whether it is built, and the keys that were drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nbmodule.core.boxes.frame import here, now
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.numbers import random
from nbmodule.core.shape.form import Form, form_of, parts_of


@contextmanager
def unchanged(things: list[Any]) -> Iterator[Callable[[Any], None]]:
    """Put back, at the end, attributes, lists and private state of these things, and the keys that were drawn.

    Gives a function that adds one more thing; a module that builds or is first called meanwhile is added by itself, wherever it
    comes from.
    """
    forms: dict[int, Form] = {}
    walked: dict[int, int | None] = {}  # the version of what was walked, so that each call of a known module is cheap

    began = here()

    def keep(thing: object) -> None:
        if isinstance(thing, Variable) or walked.get(id(thing), ...) == _version(thing):
            return
        home = getattr(getattr(thing, "_nbm", None), "home", None)
        if (
            home is not None and home.trace == here() != began
        ):  # it was made in a trace of this look, and holds what is traced
            return
        for part in parts_of(thing):
            if id(part) not in forms:
                forms[id(part)] = form_of(part)
            walked[id(part)] = _version(part)

    made, before = random.default._made, now.keep
    for thing in things:
        keep(thing)
    now.keep = keep
    try:
        yield keep
    finally:
        now.keep = before
        random.default._go_to(random.default._making.key, made)
        for form in forms.values():
            form.put_back(notes=True)


def _version(thing: object) -> int | None:
    inner = getattr(thing, "_nbm", None)
    return None if inner is None else inner.version
