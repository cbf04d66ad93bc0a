"""The name map of the GPT-2 recipe, against transformers."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.wild.operators import declare_operators

pytest.importorskip("transformers", reason="make wild installs it")


def test_a_checkpoint_of_hugging_face_gives_its_logits_in_the_recipes_model():
    declare_operators()
    from transformers import GPT2Config, GPT2LMHeadModel

    page = (Path(__file__).parents[2] / "docs" / "recipes" / "gpt2.md").read_text(encoding="utf-8")
    scope: dict = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]:
        exec(code, scope)
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=4)
    theirs = GPT2LMHeadModel(config).eval()
    ours = scope["GPT2"](words=50, positions=16, features=32, layers=2, heads=4)
    ours.load_state_dict(scope["from_hugging_face"](theirs.state_dict()))
    ids = np.array([[5, 17, 3, 17, 9, 2]])
    expected = theirs(torch.tensor(ids)).logits.detach().numpy()
    np.testing.assert_allclose(ours(ids), expected, rtol=1e-4, atol=1e-5)
