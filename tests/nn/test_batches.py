"""`nb.batches` of what others make: datasets, loaders, generators; its own cutting is tested with
the live loop.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


class Rows:
    """A dataset as many have it: a length, and one row by its number."""

    def __len__(self):
        return 7

    def __getitem__(self, number):
        assert isinstance(number, int)
        return {"x": np.full(3, number, np.float32), "label": number}


def test_a_dataset_gives_its_rows_stacked():
    found = list(nb.batches(Rows(), 3, shuffle=False))
    assert [batch["label"].tolist() for batch in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert found[0]["x"].shape == (3, 3) and found[0]["x"].dtype == np.float32
    assert sorted(
        np.concatenate([batch["label"] for batch in nb.batches(Rows(), 2, key=0)]).tolist()
    ) == list(range(7))
    assert len(nb.batches(Rows(), 3, drop_last=True)) == 2


def test_a_loader_of_torch_is_taken_as_it_is():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(6.0).reshape(6, 1), torch.arange(6))
    loader = nb.batches(DataLoader(data, batch_size=4))
    for _ in range(2):
        found = list(loader)
        assert len(loader) == 2 and [type(x) for x in found[0]] == [np.ndarray, np.ndarray]
        assert found[1][1].tolist() == [4, 5]
    assert [y.tolist() for _, y in nb.batches(data, 4, shuffle=False)] == [[0, 1, 2, 3], [4, 5]]
    x = torch.arange(5.0)
    assert [part.tolist() for part in nb.batches(x, 3, shuffle=False)] == [[0, 1, 2], [3, 4]]


def test_a_generator_goes_once_and_a_function_each_time():
    def made():
        yield [1.0, 2.0]
        yield np.ones(2)

    assert len(list(nb.batches(made()))) == 2
    again = nb.batches(made)
    assert [len(list(again)), len(list(again))] == [2, 2]


def test_prefetched_batches_lie_on_the_device_and_keep_their_order():
    taken = []

    def source():
        for number in range(5):
            taken.append(number)
            yield np.full(2, number, np.float32)

    ahead = iter(nb.batches(source, prefetch=2))
    first = next(ahead)
    assert isinstance(first, jax.Array) and first.tolist() == [0, 0] and taken == [0, 1, 2]
    assert [int(batch[0]) for batch in ahead] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nb.batches(Rows()),
            r"needs the number of rows in a batch, as in nb.batches\(dataset, 64\)",
        ),
        (lambda: nb.batches(iter([1]), 3), "makes its batches itself, so size=3 has no place"),
        (lambda: nb.batches(3), "takes arrays, a dataset .* got int"),
    ],
)
def test_other_objects_are_refused(make, message):
    with pytest.raises((nb.ArgumentError, nb.ArgumentTypeError), match=message):
        make()


def test_rows_of_files_in_another_order_of_bytes_come_out_as_numbers_that_jax_takes():
    x, y = np.arange(6, dtype=">f4").reshape(3, 2), np.arange(3, dtype=">i4")
    batches = list(nb.batches((x, y), 2, shuffle=False))
    assert [part.dtype.isnative for batch in batches for part in batch] == [True] * 4
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in batches]), x)
    assert [jnp.asarray(labels).tolist() for _, labels in batches] == [[0, 1], [2]]
