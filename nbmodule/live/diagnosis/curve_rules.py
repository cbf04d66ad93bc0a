"""Rules that read logged curves.

Each compares medians of parts of a curve with the curve's own noise, so that a single odd step is
never a verdict. The noise is the median absolute deviation of first differences, divided by sqrt(2)
(the differences of independent values vary that much more) and scaled to a normal deviation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import format_count
from nbmodule.live.diagnosis.evidence import Evidence, LoggedCurve
from nbmodule.live.diagnosis.rule import (
    Fix,
    Judge,
    RuleVerdict,
    found,
    go_back,
    rule,
    scale_rate,
    short,
)

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


def _picture(*curves: LoggedCurve) -> dict[str, list[float]]:
    return {c.name: c.values[:: max(1, len(c.values) // 100)].tolist() for c in curves}


def of_loss(
    name: str, *, needs: Sequence[str] = ("curve",), least: int = LEAST
) -> Callable[[Callable[[Evidence, LoggedCurve], RuleVerdict | None]], Judge]:
    """Add a rule that judges the training loss, once it has `least` finite values."""

    def add(judge: Callable[[Evidence, LoggedCurve], RuleVerdict | None]) -> Judge:
        @rule(name, needs=needs, category="curve")
        @functools.wraps(judge)
        def ask(evidence: Evidence) -> Iterator[RuleVerdict]:
            curve = evidence.loss
            if curve is not None and len(curve.finite) >= least:
                verdict = judge(evidence, curve)
                if verdict is not None:
                    yield replace(verdict, evidence=verdict.evidence or _picture(curve))

        return ask

    return add


@rule("nonfinite-loss", category="curve")
def nonfinite_loss(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A series stopped being finite. Every later step trains on NaN or Inf. Usual causes: a rate
    that is too large, log or division of zero, NaN in the data.
    """
    for curve in evidence.curves.values():
        for bad in np.flatnonzero(~np.isfinite(curve.values))[:1]:
            word, step = "NaN" if np.isnan(curve.values[bad]) else "Inf", int(curve.steps[bad])
            text = f"{word} in {curve.name} from step {format_count(step)}"
            best = curve.values[:bad].argmin() if bad else 0
            fixes = [*go_back(int(curve.steps[best])), *scale_rate(0.1)] if bad else []
            yield found(text, "wrong", step=step, evidence=_picture(curve), fixes=fixes)


@of_loss("rate-too-high", least=0)
def rate_too_high(evidence: Evidence, curve: LoggedCurve) -> RuleVerdict | None:
    """With a learning rate of at least 1 the loss jumped to ten times its start, or ceased to be
    finite, within the first steps. Usual rates are 0.0001 to 0.1.
    """
    rate = evidence.rate
    if rate is None or rate < 1 or evidence.input_fault is not None:
        return None
    values = curve.values[:FIRST_STEPS]
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~(values <= JUMP * abs(values[0])))
    if not len(bad):
        return None
    step = int(curve.steps[bad[0]])
    levels = f"{short(values[bad[0]])} at step {step}, {short(values[0])} at the start"
    text = f"the learning rate {short(rate)} is too high: {curve.name} is {levels}"
    message = {"kind": "set", "name": "learning rate", "value": USUAL_RATE}
    code = f'live.set("learning rate", {USUAL_RATE})'
    fixes = [Fix(f"learning rate {USUAL_RATE}", code, message)]
    return found(text, "wrong", step=step, fixes=fixes)


@of_loss("does-not-learn")
def does_not_learn(evidence: Evidence, curve: LoggedCurve) -> RuleVerdict | None:
    """The training loss has not fallen below its start. Usual causes: the optimizer updates another
    copy of the model, labels do not belong to inputs, a rate far too small or too large, symmetric
    or dead units, inputs on a wrong scale.
    """
    values, classes = curve.finite, evidence.classes
    head, tail, sigma = _head(values), _tail(values), noise_of(values)
    if np.ptp(values) == 0:
        text = f"{curve.name} is exactly {short(head)} at every step"
        return found(f"{text}: nothing that is trained affects it", "wrong")
    if classes and abs(tail / math.log(classes) - 1) < CHANCE:
        if head < tail * (1 - IMPROVED) or len(values) < 2 * LEAST:
            return None
        cause = f"the model guesses among {classes} classes"
        text = f"{curve.name} stays at {short(tail)}, which is ln({classes}): {cause}"
        began_with_a_jump = values.max() > 2 * tail  # as under a rate that is too large
        return found(text, fixes=scale_rate(0.1 if began_with_a_jump else 10))
    spread = sigma / math.sqrt(max(len(values) // 4, 1))
    has_fallen = head - tail > max(IMPROVED * abs(head), 3 * spread)
    if has_fallen or tail > head + 4 * sigma or _is_low(evidence, tail):
        return None
    return found(f"{curve.name} has not fallen: {short(head)} at the start, {short(tail)} now")


def _is_low(evidence: Evidence, level: float) -> bool:
    """Return True if a loss is already far below that of the best constant answer."""
    if evidence.classes:
        return level < 0.5 * math.log(evidence.classes)
    targets = [t for s in evidence.snapshots[-1:] for t in s.batch.targets.values()]
    if not targets or targets[0].dtype.kind not in "fiub":
        return True  # without targets there is no baseline, so the curve alone accuses nobody
    return level < 0.5 * float(np.var(targets[0].astype(np.float64)))


@rule("chance-accuracy", category="curve", needs=("curve", "batch"))
def chance_accuracy(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The accuracy equals that of guessing. Usual causes: labels that do not belong to the inputs,
    a broken evaluation, a model whose output does not depend on its input.
    """
    classes = evidence.classes
    for curve in evidence.scores("train", "val", "test") if classes > 1 else ():
        values = curve.finite
        if len(values) < 10 or "acc" not in curve.name.lower():
            continue
        level = float(np.median(values[-max(5, len(values) // 2) :]))
        if level > 1.5:  # percent
            level /= 100
        if abs(level - 1 / classes) < 0.25 / classes:
            cause = f"guessing among {classes} classes gives {short(1 / classes)}"
            yield found(f"{curve.name} stays at {short(level)}: {cause}", evidence=_picture(curve))


@of_loss("learns-slowly", needs=("curve", "variables"))
def learns_slowly(evidence: Evidence, curve: LoggedCurve) -> RuleVerdict | None:
    """The loss falls steadily but hardly, while updates are small beside the weights. The usual
    cause is a learning rate that is too small.
    """
    head, tail = _head(curve.finite), _tail(curve.finite)
    ratios = evidence.update_ratios[1:]
    if not ratios or not 0 < head - tail < 0.2 * abs(head) or _is_low(evidence, tail):
        return None
    usual = float(np.median(ratios))
    if not 0 < usual < 2e-4:
        return None
    fall = f"{short(head)} to {short(tail)} in {format_count(len(curve.finite))} steps"
    update = f"updates are {short(usual)} of the weights; about 0.001 is usual"
    text = f"{curve.name} falls slowly ({fall}) and {update}"
    return found(text, fixes=scale_rate(10))


@of_loss("oscillates")
def oscillates(evidence: Evidence, curve: LoggedCurve) -> RuleVerdict | None:
    """The loss alternates between high and low values from step to step, more than independent
    batches would. The usual cause is a learning rate that is too large.
    """
    if 2 <= len(set(evidence.digests)) <= 16:
        return None  # a few batches in turn give a curve of that period
    half = curve.finite[len(curve.finite) // 2 :]
    apart = half - smoothed(half)
    deviation = float(np.std(apart))
    if deviation < 0.1 * float(np.median(np.abs(half))) or deviation == 0:
        return None
    autocorrelation = float(np.mean(apart[1:] * apart[:-1])) / deviation**2
    if autocorrelation > -0.45:
        return None
    low, high = np.quantile(half, (0.1, 0.9))
    text = f"{curve.name} oscillates between {short(low)} and {short(high)}"
    return found(text, fixes=scale_rate(0.1))


@of_loss("diverges", least=3)
def diverges(evidence: Evidence, curve: LoggedCurve) -> RuleVerdict | None:
    """The loss ended well above both its start and its best value. The usual cause is a learning
    rate that is too large.
    """
    values = curve.finite
    if len(values) < len(curve.values) and 0 < 3 * values[0] < values[-1]:
        ends = f"from {short(values[0])} to {short(values[-1])}"
        text = f"{curve.name} rises {ends} and beyond all numbers"
        best_step = int(curve.steps[values.argmin()])
        return found(text, "wrong", fixes=[*go_back(best_step), *scale_rate(0.1)])
    if len(values) < 8:
        return None
    part = max(3, len(values) // 10)
    head, tail = float(np.median(values[:part])), float(np.median(values[-part:]))
    sigma, medians = noise_of(values[: max(8, len(values) // 2)]), smoothed(values)
    best = float(medians.min())
    if head <= 0 or tail < max(RISE * head, head + 4 * sigma, 1.5 * best):
        return None
    step = int(curve.finite_steps[medians.argmin()])
    text = f"{curve.name} rises: {short(head)} at the start, best {short(best)}, {short(tail)} now"
    return found(text, "wrong", step=step, fixes=scale_rate(0.1))


@of_loss("plateau", needs=("curve", "batch"), least=2 * LEAST)
def plateau(evidence: Evidence, curve: LoggedCurve) -> RuleVerdict | None:
    """The loss fell at first and has not moved for most of the run, while it is still high for this
    task. Try another rate, more capacity, or look at the misclassified samples.
    """
    if evidence.classes < 2:
        return None
    values, chance = curve.finite, math.log(evidence.classes)
    tenth = max(3, len(values) // 10)
    early, late = np.median(values[2 * tenth : 4 * tenth]), np.median(values[-2 * tenth :])
    sigma = noise_of(values) / math.sqrt(2 * tenth)
    has_moved = early - late > max(3 * sigma, 0.02 * late) or late > early + 4 * sigma
    has_never_fallen = _head(values) < late * (1 + IMPROVED)
    is_of_guessing = abs(late / chance - 1) < CHANCE
    if has_moved or has_never_fallen or is_of_guessing or late < 0.6 * chance:
        return None
    times = f"{short(late / chance)} times the loss of guessing"
    text = f"{curve.name} has stayed at {short(late)}, {times}"
    return found(text, "note", step=int(curve.steps[2 * tenth]))


@of_loss("spikes")
def spikes(evidence: Evidence, curve: LoggedCurve) -> RuleVerdict | None:
    """Single steps have a loss far outside the curve's own noise, and the next steps return to it.
    Usual causes: broken or mislabeled samples, a batch of another kind, unstable arithmetic.
    """
    if curve.finite.min() <= 0:
        return None
    logs = np.log(curve.finite)
    apart = logs - smoothed(logs)
    sigma = 1.4826 * float(np.median(np.abs(apart - np.median(apart))))
    limit = max(SPIKE * sigma, math.log(2.5))
    high = np.flatnonzero(apart > limit)
    high = high[(high > 2) & (high < len(logs) - 1)]
    high = high[logs[high + 1] < logs[high] - limit / 2]
    before = np.lib.stride_tricks.sliding_window_view(np.r_[np.full(20, np.nan), logs], 20)
    high = high[logs[high] > np.nanmedian(before[high], axis=1) + limit]
    if not 0 < len(high) <= max(1, OFTEN * len(logs)):
        return None
    worst = high[apart[high].argmax()]
    step, usual = int(curve.finite_steps[worst]), np.exp(np.nanmedian(before[worst]))
    more = f", and {len(high) - 1} more" if len(high) > 1 else ""
    level = f"{short(curve.finite[worst])} at step {format_count(step)}"
    text = f"{curve.name} is {level}, usually {short(usual)}{more}"
    fix = Fix("open that step", f"live.at({step})", {"kind": "open", "step": step})
    return found(text, step=step, fixes=[fix])


@of_loss("overfits", least=LEAST_VALIDATION)
def overfits(evidence: Evidence, curve: LoggedCurve) -> RuleVerdict | None:
    """The validation loss rises, or the validation score falls, while the training loss goes on
    falling. Try regularization, more data, a smaller model, or stop at the best step.
    """
    verdicts = []
    held = evidence.validation
    if held is not None and len(held.finite) >= LEAST_VALIDATION:
        verdicts = [_turned(curve, held, sign=1), _memorized(curve, held)]
    for score in evidence.scores("val", "test"):
        if len(score.finite) >= LEAST_VALIDATION:
            verdicts.append(_turned(curve, score, sign=-1))
    return next(filter(None, verdicts), None)


def _overfitting(train: LoggedCurve, held: LoggedCurve, turn: int, text: str) -> RuleVerdict:
    picture = _picture(train, held)
    return found(f"overfitting: {text}", step=turn, evidence=picture, fixes=go_back(turn))


def _turned(train: LoggedCurve, held: LoggedCurve, *, sign: int) -> RuleVerdict | None:
    """A verdict if a held-out curve has turned for the worse while the training loss fell."""
    values = sign * held.finite
    width = max(2, len(values) // 8)
    level = np.convolve(values, np.ones(width) / width, mode="valid")
    best = int(np.argmin(level))
    rise, fallen = level[-1] - level[best], abs(values[0] - level[best])
    sigma = noise_of(values) / math.sqrt(width)
    needed = max(4 * sigma, 0.1 * fallen, 0.02 * abs(level[best]), 0.01)
    turn = int(held.finite_steps[best + width - 1])
    before, after = train.values[train.steps <= turn], train.values[train.steps > turn]
    if best > len(level) - 3 or rise < needed or not len(after) or not len(before):
        return None
    reached = float(np.median(before[-max(3, len(before) // 10) :]))
    if _tail(after) >= reached - 0.5 * noise_of(after):
        return None
    word = "rises" if sign > 0 else "falls"
    change = f"{short(sign * level[best])} to {short(sign * level[-1])}"
    text = f"{held.name} {word} since step {format_count(turn)} ({change}) while {train.name} falls"
    return _overfitting(train, held, turn, text)


def _memorized(train: LoggedCurve, held: LoggedCurve) -> RuleVerdict | None:
    """A verdict if the training loss is next to zero while the validation loss stays high."""
    level, start, low = _tail(held.finite), float(held.finite[0]), _tail(train.finite)
    is_high = min(level, start, low) >= 0 and level >= 0.3 * start
    if not is_high or low > min(0.05 * level, 0.3 * _head(train.finite)):
        return None
    turn = int(held.finite_steps[held.finite.argmin()])
    levels = f"{train.name} is {short(low)} and {held.name} stays at {short(level)}"
    text = f"{levels}, best at step {format_count(turn)}"
    return _overfitting(train, held, turn, text)


@of_loss("validation-better", least=0)
def validation_better(evidence: Evidence, train: LoggedCurve) -> RuleVerdict | None:
    """The validation loss is far below the training loss. Usual causes: the same samples in both
    sets, easier validation data, or strong dropout and augmentation in training.
    """
    held = evidence.validation
    if held is None or len(held.finite) < LEAST_VALIDATION:
        return None
    if any("Dropout" in call.class_name for s in evidence.snapshots for call in s.calls):
        return None
    at = np.interp(held.steps, train.steps, smoothed(np.nan_to_num(train.values)))
    half = slice(len(at) // 2, None)
    sigma = noise_of(train.finite)
    below = at[half] - held.values[half] > np.maximum(0.3 * np.abs(at[half]), 2 * sigma)
    if below.mean() < 0.8:
        return None
    levels = f"{short(held.finite[-1])} against {short(at[-1])}"
    text = f"{held.name} is far better than {train.name}: {levels}"
    return found(text, "note", evidence=_picture(train, held))
