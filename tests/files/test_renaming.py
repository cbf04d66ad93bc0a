from __future__ import annotations

import numpy as np
import pytest

from nbmodule.api.files import load
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.files import save
from nbmodule.files.differences import rename_rows

ROWS = [("enc/l0/w", 1), ("enc/l0/b", 2), ("enc/l1/w", 3), ("encoder/w", 4), ("head", 5)]


@pytest.mark.parametrize(
    ("rename", "expected"),
    [
        ({"enc": "body"}, ["body/l0/w", "body/l0/b", "body/l1/w", "encoder/w", "head"]),
        (
            {"enc": "body", "enc/l0": "first", "enc/l0/b": "bias"},
            ["first/w", "bias", "body/l1/w", "encoder/w", "head"],
        ),
        ({"enc": None, "head": "a/b/c"}, ["encoder/w", "a/b/c"]),
        (
            lambda chain: None if chain.endswith("/b") else chain.upper(),
            ["ENC/L0/W", "ENC/L1/W", "ENCODER/W", "HEAD"],
        ),
        (
            {"enc/l0": "enc/l1", "enc/l1": "enc/l0"},
            ["enc/l1/w", "enc/l1/b", "enc/l0/w", "encoder/w", "head"],
        ),
    ],
)
def test_chains_are_renamed_by_whole_levels_the_longest_entry_first(rename, expected):
    assert [chain for chain, _ in rename_rows(ROWS, rename)[0]] == expected


@pytest.mark.parametrize("file", ["w.h5", "w.npz"])
def test_dots_in_the_names_of_a_state_dict_end_levels(tmp_path, file):
    names = {"head.weight": np.ones(2), "body.0.weight": np.zeros(2)}
    write = save if file.endswith("h5") else lambda path, arrays: np.savez(path, **arrays)
    write(tmp_path / file, names)
    loaded = load(tmp_path / file, rename={"head": None, "body/0": "trunk"})
    assert loaded.cont_all_key_chains() == ["trunk/weight"]
    assert load(tmp_path / file, prefix="body.0").cont_all_key_chains() == ["weight"]


def test_buffers_follow_the_same_rules(tmp_path):
    save(tmp_path / "w.h5", {"bn": {"scale": np.ones(2)}}, buffers={"bn": {"mean": np.zeros(2)}})
    variables, buffers = load(
        tmp_path / "w.h5", buffers=True, rename={"bn": "norm", "bn/mean": "norm/running_mean"}
    )
    assert list(variables["norm"]) == ["scale"]
    assert list(buffers["norm"]) == ["running_mean"]


def test_an_entry_that_fits_nothing_is_an_error_with_the_closest_chain(tmp_path):
    save(tmp_path / "w.h5", {"encoder": {"w": np.ones(2)}})
    with pytest.raises(
        PathError, match=r"has no 'encodr/w'; the closest name is \"encoder/w\". Pass strict=False"
    ):
        load(tmp_path / "w.h5", rename={"encodr/w": "w"})


def test_not_strict_what_matched_is_shown(tmp_path, capsys):
    save(tmp_path / "w.h5", {"encoder": {"w": np.ones(2)}, "old": np.ones(1), "head": np.ones(1)})
    rename = {"encodr/w": "w", "encoder": "enc", "old": None}
    assert sorted(load(tmp_path / "w.h5", rename=rename, strict=False)) == ["enc", "head"]
    shown = capsys.readouterr().out
    assert "encodr" in shown
    assert "old" in shown


def test_two_variables_with_one_new_name_are_refused():
    with pytest.raises(ArgumentError, match='rename makes "x/w" of both "enc/l0/w" and "enc/l1/w"'):
        rename_rows(ROWS, {"enc/l0": "x", "enc/l1": "x"})


def test_an_invalid_rename_is_refused():
    with pytest.raises(ArgumentTypeError, match="expected a dict or a function, got list"):
        rename_rows(ROWS, ["a"])  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match='"enc/l0/w" became a int'):
        rename_rows(ROWS, lambda _: 3)  # type: ignore[arg-type,return-value]
