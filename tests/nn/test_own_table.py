"""Columns of a table without numbers are refused with the code that makes numbers of them."""

import numpy as np
import pytest

import nbmodule as nb

WORDS = np.array(["cat", "dog", "cat"])
ROWS = np.array(
    [(1.5, 2, "a"), (2.5, 3, "b")], dtype=[("length", "f8"), ("count", "i8"), ("word", "U1")]
)


@nb.jit
def step(x):
    return x


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (WORDS, "words, x = np.unique(x, return_inverse=True)"),
        (WORDS.astype(object), "words, x = np.unique(x, return_inverse=True)"),
        (np.array([["1", "2.5"]]), 'x.astype("float32")'),
        (np.array([[1, None]], dtype=object), 'x.astype("float32")'),
        (ROWS, 'np.stack([x["length"], x["count"]], axis=-1).astype("float32")'),
        (
            np.array(["2024-01-01", "2024-01-02"], dtype="M8[D]"),
            '(x - x.min()) / np.timedelta64(1, "D")',
        ),
    ],
    ids=["words", "words as objects", "numbers as text", "objects", "structured", "days"],
)
def test_a_column_without_numbers_is_refused_with_code_that_makes_numbers(given, cure):
    with pytest.raises(nb.ArgumentTypeError) as refused:
        step(given)
    assert cure in str(refused.value)
    found = {"x": given, "np": np}
    exec(cure if cure.startswith("words, ") else f"x = {cure}", found)
    assert step(found["x"]).shape[0] == len(given)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: nb.Embedding(3, 2)(WORDS), r"indices must be an array of numbers, got one of dtype <U3\. x?.*np\.unique"),
        (lambda: nb.binary_cross_entropy(np.ones(3, np.float32), WORDS), ("words, target = np.unique")),
        (lambda: nb.Buffer(WORDS), r"Keep text in a list: self\.classes = classes\.tolist\(\)"),
        (lambda: nb.mse_loss(np.ones((3, 1), np.float32), np.ones(3, np.float32)), r"Drop the column of the prediction, prediction\[\.\.\., 0\]"),
        (lambda: nb.mse_loss(np.ones(3, np.float32), np.ones((3, 1), np.float32)), r"Drop the column of the target: target\[\.\.\., 0\]"),
        (lambda: nb.cross_entropy(np.ones((3, 2), np.float32), np.ones((3, 1), int)), r"Drop its column: target\[\.\.\., 0\]"),
        (lambda: nb.batches(np.ones((9, 2)), np.ones(9)), r"as in nb\.batches\(\(x, y\), 64\)"),
        (lambda: nb.batches(([[1.0, 2.0]] * 9, [0] * 9), 4), r"got shapes \[\], .*, \.\.\. Rows in lists become one array by np\.array\(rows\)"),
    ],
)  # fmt: skip
def test_errors_about_tables_name_the_fix(act, message):
    with pytest.raises(nb.NbModuleError, match=message):
        act()


def test_a_frame_with_words_names_their_columns():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"mass": [1.0, 2.0], "island": ["a", "b"]})
    with pytest.raises(
        nb.ArgumentTypeError, match=r"nb\.batches was given a DataFrame .*, no numbers"
    ):
        nb.batches(table, 2)


@pytest.mark.not_under("x64", reason="64-bit numbers lose no digit there")
def test_a_frame_whose_numbers_would_lose_digits_says_so():
    table = pytest.importorskip("pandas").DataFrame({"mass": [1.0, 2.0]})
    with pytest.raises(
        nb.ArgumentTypeError,
        match=r"nb\.summary was given a DataFrame .* would lose digits as float32.*Convert it by",
    ):
        nb.summary(nb.Linear(1, 1), table[["mass"]])
    assert (
        nb.summary(nb.Linear(1, 1), table[["mass"]].astype("float32"))[0].outputs == "float32[2, 1]"
    )
