import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.nn.recurrent import GRU, LSTM, RNN
from tests.nn.conftest import close

torch = pytest.importorskip("torch")

KINDS = {RNN: torch.nn.RNN, LSTM: torch.nn.LSTM, GRU: torch.nn.GRU}
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def pair(kind, **options):
    names = {"with_bias": "bias", "dropout_rate": "dropout"}
    for_torch = {names.get(name, name): value for name, value in options.items()}
    return kind(3, 4, **options), KINDS[kind](3, 4, batch_first=True, **for_torch)


def test_lengths_agree_with_packed_sequences_of_torch(draws):
    ours, theirs = pair(LSTM, num_layers=2, bidirectional=True)
    theirs.load_state_dict(ours.to_torch())
    x, lengths = draws.normal(size=(3, 6, 3)).astype("f"), np.array([6, 2, 4])
    y, state = ours(x, lengths=lengths)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    wanted, last = theirs(packed)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(wanted, batch_first=True)
    close(y, wanted.detach(), rtol=1e-5, atol=1e-5)
    for mine, their in zip(jax.tree.leaves(state), jax.tree.leaves(last), strict=True):
        close(mine, their.detach(), rtol=1e-5, atol=1e-5)


def test_a_sequence_may_be_given_in_parts(draws):
    layer, x = LSTM(3, 4, num_layers=2, key=0), draws.normal(size=(2, 6, 3)).astype("f")
    whole, end = layer(x)
    first, state = layer(x[:, :3])
    second, last = layer(x[:, 3:], state)
    close(jnp.concatenate([first, second], 1), whole)
    jax.tree.map(lambda a, b: close(a, b), last, end)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_outputs_can_be_chosen(bidirectional, draws):
    x = draws.normal(size=(2, 5, 3)).astype("f")
    options = {"bidirectional": bidirectional, "key": 0}
    y, (h, c) = LSTM(3, 4, **options)(x)
    np.testing.assert_array_equal(LSTM(3, 4, return_state=False, **options)(x), y)
    end, (h2, _) = LSTM(3, 4, return_sequence=False, **options)(x)
    np.testing.assert_array_equal(h2, h)
    wanted = jnp.concatenate([y[:, -1, :4], y[:, 0, 4:]], -1) if bidirectional else y[:, -1]
    close(end, wanted)
    assert LSTM(3, 4, return_sequence=False, return_state=False, **options)(x).shape == end.shape
    assert c.shape == h.shape


def test_dropout_between_layers_draws_only_in_training(draws):
    x = draws.normal(size=(2, 5, 3)).astype("f")
    layer, plain = GRU(3, 8, num_layers=2, dropout_rate=0.5, key=0), GRU(3, 8, num_layers=2, key=0)
    first, second = layer(x)[0], layer(x)[0]
    assert (np.asarray(first) != np.asarray(second)).any()
    np.testing.assert_array_equal(layer.eval()(x)[0], plain(x)[0])


def test_the_first_values_are_uniform_within_the_bound():
    for array in LSTM(3, 25, key=4).state_dict().values():
        assert 0.15 < abs(array).max() <= 0.2
    given = GRU(3, 4, num_layers=2, weight_initializer=nb.GlorotUniform(), bias_initializer=0.0)
    assert not given.bias_ih_l0().any()
    assert abs(given.weight_ih_l0()).max() <= (6 / 7) ** 0.5


@pytest.mark.not_under("eager", reason="each operation is a program there")
def test_an_eager_call_is_one_program(draws):
    layer = LSTM(3, 4, num_layers=2, bidirectional=True)
    x = jnp.asarray(draws.normal(size=(2, 5, 3)), jnp.float32)
    names = [
        equation.primitive.name
        for equation in jax.make_jaxpr(lambda layer, x: layer(x))(layer, x).eqns
    ]
    assert names.count("scan") == 4
    assert "pjit" not in names


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_a_cell_takes_the_steps_of_its_layer(kind, draws):
    cell, layer = getattr(nb, f"{kind}Cell")(3, 4), getattr(nb, kind)(3, 4)
    layer.load_state_dict({f"{key}_l0": value for key, value in cell.state_dict().items()})
    xs, state = draws.normal(size=(6, 5, 3)).astype("f"), None
    for x in xs:
        state = cell(x, state)
    _, last = layer(np.moveaxis(xs, 0, 1))
    jax.tree.map(lambda a, b: close(a, b[0], rtol=1e-4, atol=1e-5), state, last)


def test_a_cell_trains_inside_a_scan():
    cell = nb.GRUCell(3, 4)
    xs = jnp.ones((5, 2, 3))

    def loss(cell):
        last, _ = nb.scan(lambda state, x: (cell(x, state), None), jnp.zeros((2, 4)), xs)
        return (last**2).sum()

    gradients = nb.jit(nb.grad(loss))(cell)
    assert all(value.any() for _, value in gradients.cont_to_iterator())
