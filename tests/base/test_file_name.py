from __future__ import annotations

import io
import os
from pathlib import Path

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.base.whole_file import file_name
from nbmodule.errors import ArgumentError, ArgumentTypeError


def doors(model, name):
    """Every public way to name a file or a folder."""
    graph, tree = nb.graph(jnp.sin, jnp.ones(3)), nb.Container(a=1)
    return [
        lambda: model.save_weights(name),
        lambda: model.load_weights(name),
        lambda: nb.save(name, model),
        lambda: nb.load(name),
        lambda: nb.load(name, model),
        lambda: nb.save_safetensors(name, model),
        lambda: nb.save_checkpoint(name, step=0, model=model),
        lambda: nb.restore_checkpoint(name, model=model),
        lambda: nb.checkpoint_steps(name),
        lambda: nb.in_background(nb.save, name, {}),
        lambda: nb.load_calls(name),
        lambda: graph.save(name),
        lambda: tree.cont_save(name),
        lambda: nb.Container.cont_load(name),
        lambda: tree.cont_to_disk_as_json(name),
        lambda: nb.Container.cont_from_disk_as_json(name),
    ]


@pytest.mark.parametrize(
    "name", [b"weights.h5", io.BytesIO(), None, 3], ids=["bytes", "file", "None", "number"]
)
def test_what_is_no_name_of_a_file_is_refused_by_every_door_in_the_same_words(name):
    for door in doors(nb.Linear(2, 2), name):
        with pytest.raises(ArgumentTypeError, match=rf"(found|got) {type(name).__name__}\."):
            door()


def test_a_name_that_no_file_can_have_is_refused_by_every_door(tmp_path):
    for door in doors(nb.Linear(2, 2), str(tmp_path / "a\0b.h5")):
        with pytest.raises(ArgumentError, match="holds a NUL character"):
            door()


def test_an_empty_name_is_refused():
    with pytest.raises(ArgumentError, match=r"cannot save: the name '' is empty\."):
        nb.Linear(2, 2).save_weights("")


def test_a_name_may_be_text_or_a_path():
    assert file_name("runs/w.h5", "save") == file_name(Path("runs") / "w.h5", "save") == "runs/w.h5"


def test_bytes_are_told_how_they_become_text():
    with pytest.raises(ArgumentTypeError, match=r"`os.fsdecode` makes text of bytes"):
        file_name(os.fsencode("w.h5"), "load")
