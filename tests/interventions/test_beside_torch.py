"""The same questions written in PyTorch by hand, by the documented definitions of TransformerLens
and Captum: the same numbers.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
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
def test_one_call_gives_what_hooks_in_torch_give(question, both):
    ours, theirs = both
    found, wanted = questions.ANSWERS[question](*ours), by_hand.ANSWERS[question](*theirs).numpy()
    assert found.shape == wanted.shape and np.ptp(wanted) > 1e-2
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-5)


def test_both_ways_ask_the_same_questions_and_one_call_is_shorter():
    assert list(questions.ANSWERS) == list(by_hand.ANSWERS)
    for question, answer in questions.ANSWERS.items():
        assert (
            questions.statements_of(answer)
            <= 3
            <= questions.statements_of(by_hand.ANSWERS[question])
        )


def test_integrated_gradients_are_taken_at_gauss_legendre_points_and_complete():
    """Captum's `IntegratedGradients` takes these 50 points by default, from zeros; its other rules
    give other numbers.
    """
    nb.seed(4)
    model = nb.Sequential(nb.Linear(4, 6), nb.Tanh(), nb.Linear(6, 3))
    p = {
        name: torch.tensor(np.asarray(variable.value))
        for name, variable in model.named_parameters()
    }
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)

    def value(x):
        return (torch.tanh(x @ p["0.weight"].T + p["0.bias"]) @ p["2.weight"].T + p["2.bias"])[
            :, 2
        ].sum()

    def integral(points, weights):
        total = torch.zeros(2, 4)
        for alpha, weight in zip(points, weights):
            point = (torch.tensor(x) * float(alpha)).requires_grad_(True)
            total += float(weight) * torch.autograd.grad(value(point), point)[0]
        return (total * torch.tensor(x)).numpy()

    nodes, weights = np.polynomial.legendre.leggauss(50)
    found = nb.attribute(model, jnp.asarray(x), lambda y: y[:, 2].sum(), method="integrated").inputs
    np.testing.assert_allclose(found, integral((nodes + 1) / 2, weights / 2), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        found.sum(), float(value(torch.tensor(x)) - value(torch.zeros(2, 4))), rtol=1e-4
    )
    left = integral(np.arange(50) / 50, np.full(50, 1 / 50))  # `method="riemann_left"`
    assert np.abs(found - left).max() > 1e-3
