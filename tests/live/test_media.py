"""Samples, confusion matrices and maps of points: counted right, drawn safely, kept in journals."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics import confusion_matrix

import nbmodule as nb
from nbmodule.live.reporting.payload import record_of

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 40)
SCORES = RNG.random((40, 3))
IMAGES = RNG.random((40, 5, 4)).astype(np.float32)


def test_the_largest_losses_come_first_and_nan_before_all():
    losses = RNG.random(40)
    losses[7] = np.nan
    media = nb.samples(IMAGES, LABELS, SCORES, losses, most=5)
    expected = [7, *(np.argsort(-np.nan_to_num(losses))[:4]).tolist()]
    assert [int(k) for k in media.columns["sample"]] == expected
    np.testing.assert_allclose(media.arrays["images"] / 255, _scaled(IMAGES[expected]), atol=0.003)


def _scaled(x):
    return (x - x.min()) / (x.max() - x.min())


def test_without_losses_wrong_predictions_come_first_and_are_marked():
    media = nb.samples(["a", "b", "c"], [0, 1, 1], [0, 0, 1], names=["cat", "dog"])
    assert media.columns["sample"][0] == "1"
    assert media.columns["prediction"] == ["cat ✗", "cat", "dog"]


def test_counts_of_a_confusion_matrix_equal_those_of_scikit_learn():
    media = nb.confusion(SCORES, LABELS, x=IMAGES)
    np.testing.assert_array_equal(
        media.arrays["counts"], confusion_matrix(LABELS, SCORES.argmax(1))
    )
    cells = LABELS * 3 + SCORES.argmax(1)
    assert (media.arrays["cells"] == cells[media.arrays["indices"]]).all()
    assert media.html().count("<summary") == len(np.unique(cells))


def test_a_map_is_that_of_principal_components():
    points = RNG.normal(size=(30, 6)) * np.arange(1, 7)
    media = nb.embedding_map(points, LABELS[:30])
    pca = PCA(2).fit(points)
    expected = pca.transform(points)
    for k in range(2):
        column = media.arrays["points"][:, k]
        sign = np.sign(column @ expected[:, k])
        np.testing.assert_allclose(sign * column, expected[:, k], atol=1e-4)
    assert media.facts["first"] == pytest.approx(pca.explained_variance_ratio_[0])
    assert media.html().count("<circle") == 30


def test_sounds_have_a_player_and_the_sampling_rate():
    media = nb.samples(RNG.random((2, 100)) - 0.5, rate=8000)
    assert media.html().count("<audio controls") == 2
    assert media.arrays["sounds"].dtype == np.int16


def all_forms():
    return {
        "images": nb.samples(IMAGES, LABELS, SCORES, names=["<script>alert(1)</script>"] * 3),
        "matrix": nb.confusion(SCORES, LABELS, x=IMAGES, names=["a", "b", "<b>"]),
        "map": nb.embedding_map(RNG.normal(size=(9, 3)), LABELS[:9], names=["<i>", "b", "c"]),
        "sounds": nb.samples(RNG.random((2, 9)), rate=10),
    }


def test_logged_media_stand_in_the_view_the_journal_and_the_report(tmp_path):
    forms = all_forms()
    with nb.Live(display=False, journal=tmp_path) as live:
        for i in live.steps(range(3)):
            live.log(loss=1.0, remark=f"step {i}", **forms)
    assert list(live._state.messages) == []
    run = nb.runs(tmp_path)[0]
    for name, media in forms.items():
        kept = run.history.media[name]
        assert [item.step for item in kept] == [1, 2, 3]
        assert kept[-1].value.html() == media.html()
    assert run.history.media["remark"][-1].value == "step 2"
    assert json.dumps(record_of(live._state)).count("data:image/png") > 10
    run.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in text and "<audio" in text and "step 2" in text
    assert not re.findall(r'(?:src|href)="https?://', text)


@pytest.mark.parametrize("cut", [0, 10, -5])
def test_damaged_or_foreign_media_are_refused(cut):
    data = nb.confusion([0, 1], [1, 1]).to_bytes()
    with pytest.raises(nb.errors.FileFormatError, match="media"):
        nb.Media.from_bytes(data[:cut])
    other = nb.Media("confusion", {"counts": np.zeros(3)}).to_bytes()
    with pytest.raises(nb.errors.FileFormatError):
        nb.Media.from_bytes(other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nb.samples(IMAGES, LABELS[:3]), "one for each of 40 samples"),
        (lambda: nb.samples(IMAGES, losses=[1.0]), "losses must have shape"),
        (lambda: nb.samples(np.ones((2, 3, 4, 5))), "got shape"),
        (lambda: nb.confusion([0, -1], [0, 1]), "counted from 0"),
        (lambda: nb.confusion([0, 500], [0, 1]), "at most 100"),
        (lambda: nb.embedding_map([1.0, 2.0]), "finite vectors"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, message):
    with pytest.raises(nb.errors.ArgumentError, match=message):
        call()
