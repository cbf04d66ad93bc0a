"""Interventions agree with the definitions of TransformerLens and Captum, written in PyTorch."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.cases import questions

torch = pytest.importorskip("torch")
by_hand = pytest.importorskip("benchmarks.peers.questions_torch")


@pytest.fixture(scope="module")
def both(tiny, tokens):
    """The arguments of an answer, ours and theirs."""
    corrupted = np.array(tokens)
    corrupted[:, 2] = (corrupted[:, 2] + 3) % 11
    numbers = (np.array(tokens), corrupted)
    ours = (tiny, *(jnp.asarray(x) for x in numbers), questions.difference)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # its waiting threads spin, where there are few cores
    yield (
        ours,
        (by_hand.reader_of(tiny), *(torch.tensor(x).long() for x in numbers), questions.difference),
    )
    torch.set_num_threads(threads)


@pytest.mark.parametrize("question", questions.ANSWERS)
def test_one_call_gives_the_numbers_of_hooks_in_pytorch(question, both):
    ours, theirs = both
    found, wanted = questions.ANSWERS[question](*ours), by_hand.ANSWERS[question](*theirs).numpy()
    assert found.shape == wanted.shape and np.ptp(wanted) > 1e-2
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-5)
