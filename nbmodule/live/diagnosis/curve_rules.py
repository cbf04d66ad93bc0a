"""Rules that read logged curves.

Each compares medians of parts of a curve with the curve's own noise, so that a single odd step is
never a verdict. The noise is the median absolute deviation of first differences, divided by sqrt(2)
(the differences of independent values vary that much more) and scaled to a normal deviation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import format_count
from nbmodule.live.diagnosis.evidence import Evidence, LoggedCurve
from nbmodule.live.diagnosis.rule import Fix, RuleVerdict, go_back, rule, scale_rate, short_number

Values = NDArray[np.floating]

LEAST = 30
"""Points below which a training curve is not judged."""
LEAST_VALIDATION = 6
MOST_MEDIANS = 500
CHANCE = 0.03
"""Relative distance from ln(classes) within which a loss is that of guessing."""
IMPROVED = 0.03
"""Relative fall of the median below which a loss has not improved."""
FIRST_STEPS, JUMP, USUAL_RATE = 20, 10.0, 0.01
RISE = 1.2
OFTEN = 0.12
"""Share of steps beyond which outliers are the tail of the loss; one bad sample in an epoch of ten
batches gives a tenth."""
SPIKE = 7.0
"""Robust deviations of the logarithm: heavy-tailed losses (log-normal, gamma) stay below."""


def noise_of(values: Values) -> float:
    """Return the robust standard deviation of a curve's noise."""
    if len(values) < 3:
        return 0.0
    return float(np.median(np.abs(np.diff(values)))) * 1.4826 / math.sqrt(2)


def smoothed(values: Values) -> Values:
    """Return running medians over a tenth of the curve, at least three points.

    Of a long curve they are taken at `MOST_MEDIANS` points, of as many values of the window, and
    interpolated between: a run is judged about once a second.
    """
    width, count = max(3, len(values) // 10), len(values)
    at = np.unique(np.linspace(0, count - 1, min(count, MOST_MEDIANS)).round().astype(int))
    every = max(1, width // MOST_MEDIANS)
    begin, rest = at[at < width - 1], at[at >= width - 1]
    medians = [np.median(values[: k + 1][::-every]) for k in begin]
    if len(rest):
        windows = np.lib.stride_tricks.sliding_window_view(values, width)[rest - width + 1]
        medians += np.median(windows[:, ::-every], axis=1).tolist()
    return np.interp(np.arange(count), at, medians)


def _head(values: Values) -> float:
    return float(np.median(values[: max(3, len(values) // 20)]))


def _tail(values: Values) -> float:
    return float(np.median(values[-max(5, len(values) // 4) :]))


def _picture(curve: LoggedCurve) -> dict[str, list[float]]:
    every = max(1, len(curve.values) // 100)
    return {curve.name: [float(v) for v in curve.values[::every]]}


@rule("nonfinite-loss", category="curve")
def nonfinite_loss(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A series stopped being finite. Every later step trains on NaN or Inf. Usual causes: a rate
    that is too large, log or division of zero, NaN in the data.
    """
    for curve in evidence.curves.values():
        bad = np.flatnonzero(~np.isfinite(curve.values))
        if len(bad):
            word = "NaN" if np.isnan(curve.values[bad[0]]) else "Inf"
            step = int(curve.steps[bad[0]])
            text = f"{word} in {curve.name} from step {format_count(step)}"
            fixes = []
            if bad[0] > 0:
                best = int(curve.steps[int(np.argmin(curve.values[: bad[0]]))])
                fixes = [*go_back(best), *scale_rate(0.1)]
            yield RuleVerdict(
                "nonfinite-loss", text, "wrong", step=step, evidence=_picture(curve), fixes=fixes
            )


@rule("rate-too-high", category="curve")
def rate_too_high(evidence: Evidence) -> Iterator[RuleVerdict]:
    """With a learning rate of at least 1 the loss jumped to ten times its start, or ceased to be
    finite, within the first steps. Usual rates are 0.0001 to 0.1.
    """
    curve, rate = evidence.loss, evidence.rate
    if curve is None or rate is None or rate < 1 or evidence.input_fault is not None:
        return
    values = curve.values[:FIRST_STEPS]
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~(values <= JUMP * abs(values[0])))
    if not len(bad):
        return
    value, step = float(values[bad[0]]), int(curve.steps[bad[0]])
    text = (
        f"the learning rate {short_number(rate)} is too high: {curve.name} is "
        f"{short_number(value)} at step {step}, {short_number(float(values[0]))} at the start"
    )
    message = {"kind": "set", "name": "learning rate", "value": USUAL_RATE}
    code = f'live.set("learning rate", {USUAL_RATE})'
    fixes = [Fix(f"learning rate {USUAL_RATE}", code, message)]
    yield RuleVerdict(
        "rate-too-high", text, "wrong", step=step, evidence=_picture(curve), fixes=fixes
    )


@rule("does-not-learn", category="curve")
def does_not_learn(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The training loss has not fallen below its start. Usual causes: the optimizer updates another
    copy of the model, labels do not belong to inputs, a rate far too small or too large, symmetric
    or dead units, inputs on a wrong scale.
    """
    curve = evidence.loss
    if curve is None or len(curve.finite) < LEAST:
        return
    values, classes = curve.finite, evidence.classes
    head, tail, sigma = _head(values), _tail(values), noise_of(values)
    if np.ptp(values) == 0:
        text = (
            f"{curve.name} is exactly {short_number(head)} at every step: nothing that is "
            "trained affects it"
        )
        yield RuleVerdict("does-not-learn", text, "wrong", evidence=_picture(curve))
        return
    if classes and abs(tail / math.log(classes) - 1) < CHANCE:
        if head < tail * (1 - IMPROVED) or len(values) < 2 * LEAST:
            return
        text = (
            f"{curve.name} stays at {short_number(tail)}, which is ln({classes}): "
            f"the model guesses among {classes} classes"
        )
        factor = (
            0.1 if values.max() > 2 * tail else 10
        )  # a rate that is too large began with a jump
        fixes = scale_rate(factor)
        yield RuleVerdict("does-not-learn", text, evidence=_picture(curve), fixes=fixes)
        return
    spread = sigma / math.sqrt(max(len(values) // 4, 1))
    fallen = head - tail
    if fallen > max(IMPROVED * abs(head), 3 * spread) or tail > head + 4 * sigma:
        return
    if _is_low(evidence, tail):
        return
    text = (
        f"{curve.name} has not fallen: {short_number(head)} at the start, {short_number(tail)} now"
    )
    yield RuleVerdict("does-not-learn", text, evidence=_picture(curve))


def _is_low(evidence: Evidence, level: float) -> bool:
    """Return True if a loss is already far below that of the best constant answer."""
    if evidence.classes:
        return level < 0.5 * math.log(evidence.classes)
    last = evidence.last
    targets = next(iter(last.batch.targets.values()), None) if last else None
    if targets is None or targets.dtype.kind not in "fiub":
        return True  # without targets there is no baseline, so the curve alone accuses nobody
    return level < 0.5 * float(np.var(targets.astype(np.float64)))


@rule("chance-accuracy", category="curve", needs=("curve", "batch"))
def chance_accuracy(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The accuracy equals that of guessing. Usual causes: labels that do not belong to the inputs,
    a broken evaluation, a model whose output does not depend on its input.
    """
    classes = evidence.classes
    if classes < 2:
        return
    for curve in evidence.scores("train", "val", "test"):
        values = curve.finite
        if len(values) < 10 or "acc" not in curve.name.lower():
            continue
        level = float(np.median(values[-max(5, len(values) // 2) :]))
        if level > 1.5:  # percent
            level /= 100
        if abs(level - 1 / classes) < 0.25 / classes:
            text = (
                f"{curve.name} stays at {short_number(level)}: guessing among {classes} "
                f"classes gives {short_number(1 / classes)}"
            )
            yield RuleVerdict("chance-accuracy", text, evidence=_picture(curve))


@rule("learns-slowly", category="curve", needs=("curve", "variables"))
def learns_slowly(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The loss falls steadily but hardly, while updates are small beside the weights. The usual
    cause is a learning rate that is too small.
    """
    curve = evidence.loss
    if curve is None or len(curve.finite) < LEAST or len(evidence.snapshots) < 2:
        return
    values = curve.finite
    head, tail = _head(values), _tail(values)
    if not 0 < head - tail < 0.2 * abs(head) or _is_low(evidence, tail):
        return
    ratios = _update_ratios(evidence)
    if not ratios or not 0 < float(np.median(ratios)) < 2e-4:
        return
    text = (
        f"{curve.name} falls slowly ({short_number(head)} to {short_number(tail)} in "
        f"{format_count(len(values))} steps) "
        f"and updates are {short_number(float(np.median(ratios)))} of the weights; "
        "about 0.001 is usual"
    )
    yield RuleVerdict("learns-slowly", text, evidence=_picture(curve), fixes=scale_rate(10))


def _update_ratios(evidence: Evidence) -> list[float]:
    found = []
    for snapshot in evidence.snapshots[1:] or evidence.snapshots:
        ratios = [
            v.ratio for v in snapshot.variables if v.trainable and len(v.shape) > 1 and v.norm > 0
        ]
        if ratios:
            found.append(float(np.median(ratios)))
    return found


@rule("oscillates", category="curve")
def oscillates(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The loss alternates between high and low values from step to step, more than independent
    batches would. The usual cause is a learning rate that is too large.
    """
    curve = evidence.loss
    if curve is None or len(curve.finite) < LEAST:
        return
    batches = len(set(evidence.digests))
    if 2 <= batches <= 16:
        return  # a few batches in turn give a curve of that period
    half = curve.finite[len(curve.finite) // 2 :]
    apart = half - smoothed(half)
    level = float(np.median(np.abs(half)))
    deviation = float(np.std(apart))
    if deviation < 0.1 * level or deviation == 0:
        return
    autocorrelation = float(np.mean(apart[1:] * apart[:-1])) / deviation**2
    if autocorrelation > -0.45:
        return
    text = (
        f"{curve.name} oscillates between {short_number(float(np.quantile(half, 0.1)))} and "
        f"{short_number(float(np.quantile(half, 0.9)))}"
    )
    yield RuleVerdict("oscillates", text, evidence=_picture(curve), fixes=scale_rate(0.1))


@rule("diverges", category="curve")
def diverges(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The loss ended well above both its start and its best value. The usual cause is a learning
    rate that is too large.
    """
    curve = evidence.loss
    if curve is None or len(curve.finite) < 3:
        return
    values = curve.finite
    if len(values) < len(curve.values) and 0 < 3 * values[0] < values[-1]:
        text = (
            f"{curve.name} rises from {short_number(float(values[0]))} to "
            f"{short_number(float(values[-1]))} and beyond all numbers"
        )
        yield RuleVerdict(
            "diverges",
            text,
            "wrong",
            evidence=_picture(curve),
            fixes=[*go_back(int(curve.steps[int(np.argmin(values))])), *scale_rate(0.1)],
        )
        return
    if len(values) < 8:
        return
    part = max(3, len(values) // 10)
    head, tail = float(np.median(values[:part])), float(np.median(values[-part:]))
    sigma = noise_of(values[: max(8, len(values) // 2)])
    best = float(smoothed(values).min())
    if head <= 0 or tail < max(RISE * head, head + 4 * sigma) or tail < 1.5 * best:
        return
    step = int(curve.steps[np.isfinite(curve.values)][int(np.argmin(smoothed(values)))])
    text = (
        f"{curve.name} rises: {short_number(head)} at the start, best {short_number(best)}, "
        f"{short_number(tail)} now"
    )
    yield RuleVerdict(
        "diverges", text, "wrong", step=step, evidence=_picture(curve), fixes=scale_rate(0.1)
    )


@rule("plateau", category="curve", needs=("curve", "batch"))
def plateau(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The loss fell at first and has not moved for most of the run, while it is still high for this
    task. Try another rate, more capacity, or look at the misclassified samples.
    """
    curve, classes = evidence.loss, evidence.classes
    if curve is None or classes < 2 or len(curve.finite) < 2 * LEAST:
        return
    values = curve.finite
    tenth = max(3, len(values) // 10)
    head, early, late = (
        _head(values),
        np.median(values[2 * tenth : 4 * tenth]),
        np.median(values[-2 * tenth :]),
    )
    sigma = noise_of(values) / math.sqrt(2 * tenth)
    if (
        late < 0.6 * math.log(classes)
        or head < late * (1 + IMPROVED)
        or early - late > max(3 * sigma, 0.02 * late)
    ):
        return
    if abs(late / math.log(classes) - 1) < CHANCE or late > early + 4 * sigma:
        return
    step = int(curve.steps[min(2 * tenth, len(curve.steps) - 1)])
    text = (
        f"{curve.name} has stayed at {short_number(float(late))}, "
        f"{short_number(float(late / math.log(classes)))} times the loss of guessing"
    )
    yield RuleVerdict("plateau", text, "note", step=step, evidence=_picture(curve))


@rule("spikes", category="curve")
def spikes(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Single steps have a loss far outside the curve's own noise, and the next steps return to it.
    Usual causes: broken or mislabeled samples, a batch of another kind, unstable arithmetic.
    """
    curve = evidence.loss
    if curve is None or len(curve.finite) < LEAST or curve.finite.min() <= 0:
        return
    logs = np.log(curve.finite)
    apart = logs - smoothed(logs)
    sigma = 1.4826 * float(np.median(np.abs(apart - np.median(apart))))
    limit = max(SPIKE * sigma, math.log(2.5))
    high = np.flatnonzero(apart > limit)
    high = high[(high > 2) & (high < len(logs) - 1)]
    high = high[logs[np.minimum(high + 1, len(logs) - 1)] < logs[high] - limit / 2]
    before = np.lib.stride_tricks.sliding_window_view(np.r_[np.full(20, np.nan), logs], 20)
    usual = np.nanmedian(before[high], axis=1)
    is_above = logs[high] > usual + limit
    high, usual = high[is_above], usual[is_above]
    if not 0 < len(high) <= max(1, OFTEN * len(logs)):
        return
    steps = curve.steps[np.isfinite(curve.values)]
    worst = high[int(np.argmax(apart[high]))]
    level = float(np.exp(usual[high == worst][0]))
    more = f", and {len(high) - 1} more" if len(high) > 1 else ""
    text = (
        f"{curve.name} is {short_number(float(curve.finite[worst]))} at step "
        f"{format_count(int(steps[worst]))}, usually {short_number(level)}{more}"
    )
    fixes = [
        Fix(
            "open that step",
            f"live.at({int(steps[worst])})",
            {"kind": "open", "step": int(steps[worst])},
        )
    ]
    yield RuleVerdict("spikes", text, step=int(steps[worst]), evidence=_picture(curve), fixes=fixes)


@rule("overfits", category="curve")
def overfits(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The validation loss rises, or the validation score falls, while the training loss goes on
    falling. Try regularization, more data, a smaller model, or stop at the best step.
    """
    train = evidence.loss
    if train is None or len(train.finite) < LEAST_VALIDATION:
        return
    held = evidence.validation
    if held is not None and len(held.finite) >= LEAST_VALIDATION:
        verdict = _turned(train, held, sign=1) or _memorized(train, held)
        if verdict is not None:
            yield verdict
            return
    for score in evidence.scores("val", "test"):
        if len(score.finite) >= LEAST_VALIDATION:
            verdict = _turned(train, score, sign=-1)
            if verdict is not None:
                yield verdict
                return


def _turned(train: LoggedCurve, held: LoggedCurve, *, sign: int) -> RuleVerdict | None:
    """A verdict if a held-out curve has turned for the worse while the training loss fell."""
    values = sign * held.finite
    width = max(2, len(values) // 8)
    level = np.convolve(values, np.ones(width) / width, mode="valid")
    best = int(np.argmin(level))
    rise, sigma = float(level[-1] - level[best]), noise_of(values) / math.sqrt(width)
    fallen = float(values[0] - level[best])
    if best > len(level) - 3 or rise < max(
        4 * sigma, 0.1 * abs(fallen), 0.02 * abs(level[best]), 0.01
    ):
        return None
    steps = held.steps[np.isfinite(held.values)]
    turn = int(steps[best + width - 1])
    before = train.values[train.steps <= turn]
    after = train.values[train.steps > turn]
    if not len(after) or not len(before):
        return None
    if _tail(after) >= float(np.median(before[-max(3, len(before) // 10) :])) - 0.5 * noise_of(
        after
    ):
        return None
    word = "rises" if sign > 0 else "falls"
    was, is_now = short_number(sign * float(level[best])), short_number(sign * float(level[-1]))
    text = (
        f"overfitting: {held.name} {word} since step {format_count(turn)} ({was} to "
        f"{is_now}) while {train.name} falls"
    )
    picture = {**_picture(train), **_picture(held)}
    return RuleVerdict("overfits", text, step=turn, evidence=picture, fixes=go_back(turn))


def _memorized(train: LoggedCurve, held: LoggedCurve) -> RuleVerdict | None:
    """A verdict if the training loss is next to zero while the validation loss stays high."""
    level, start = _tail(held.finite), float(held.finite[0])
    low = _tail(train.finite)
    if min(level, start, low) < 0 or level < 0.3 * start:
        return None
    if low > 0.05 * level or low > 0.3 * _head(train.finite):
        return None
    turn = int(held.steps[np.isfinite(held.values)][int(np.argmin(held.finite))])
    text = (
        f"overfitting: {train.name} is {short_number(low)} and {held.name} stays at "
        f"{short_number(level)}, "
        f"best at step {format_count(turn)}"
    )
    picture = {**_picture(train), **_picture(held)}
    return RuleVerdict("overfits", text, step=turn, evidence=picture, fixes=go_back(turn))


@rule("validation-better", category="curve")
def validation_better(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The validation loss lies far below the training loss. Usual causes: the same samples in both
    sets, easier validation data, or strong dropout and augmentation in training.
    """
    train, held = evidence.loss, evidence.validation
    if train is None or held is None or len(held.finite) < LEAST_VALIDATION:
        return
    if any("Dropout" in call.class_name for s in evidence.snapshots for call in s.calls):
        return
    at = np.interp(held.steps, train.steps, smoothed(np.nan_to_num(train.values)))
    half = slice(len(at) // 2, None)
    sigma = noise_of(train.finite)
    below = at[half] - held.values[half] > np.maximum(0.3 * np.abs(at[half]), 2 * sigma)
    if below.mean() < 0.8:
        return
    text = (
        f"{held.name} is far better than {train.name}: "
        f"{short_number(float(held.finite[-1]))} against {short_number(float(at[-1]))}"
    )
    yield RuleVerdict(
        "validation-better", text, "note", evidence={**_picture(train), **_picture(held)}
    )
