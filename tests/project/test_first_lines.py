"""First lines as hands from other frameworks type them: each works here, or is answered by a
message that names the cure.

The pages of docs/coming_from show these tables; `python tools/make_first_lines.py` writes them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tools.make_first_lines import with_table

ROOT = Path(__file__).parents[2]

LINES = tomllib.loads((ROOT / "tests/project/first_lines.toml").read_text(encoding="utf-8"))
ALL = [(page, line, answer) for page, lines in LINES.items() for line, answer in lines.items()]


def names():
    """What a notebook has when such a line is typed into it."""
    import jax
    import jax.numpy as jnp
    import optax

    import nbmodule as nb

    model = nb.Linear(3, 3)
    optimizer = nb.Adam(1e-3)
    x = jnp.ones((2, 3))
    return {
        "nb": nb, "nn": nb.nn, "F": nb.nn.functional, "optim": nb.optim, "jax": jax, "jnp": jnp, "optax": optax, "model": model,
        "optimizer": optimizer, "x": x, "loss": nb.mse_loss(model(x), x),
    }  # fmt: skip


def answer_to(line):
    """What the line is answered with: None where it works."""
    try:
        eval(line, names())
    except Exception as error:  # noqa: BLE001 - whatever the answer is
        cures = [note for note in getattr(error, "__notes__", ()) if not note.startswith("in ")]
        return " ".join(cures) or str(error)
    return None


def test_the_list_is_long_enough():
    assert len(ALL) >= 80 and len({line for _, line, _ in ALL}) == len(ALL)


@pytest.mark.parametrize(("page", "line", "answer"), ALL, ids=[line for _, line, _ in ALL])
def test_a_first_line_works_or_is_answered_with_the_cure(page, line, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = answer_to(line)
    assert re.search(answer, found or "") if answer else found is None, f"{line}: {found}"


@pytest.mark.parametrize("page", LINES)
def test_the_page_shows_these_lines(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = ROOT / "docs" / "coming_from" / f"{page}.md"
    text = path.read_text(encoding="utf-8")
    made = with_table(text, LINES[page], answer_to)
    assert text == made, "run `python tools/make_first_lines.py`"
