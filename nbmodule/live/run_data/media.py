"""Samples with labels, confusion matrices and maps of points: logged as data, drawn as HTML.

A `Media` holds texts and plain arrays and nothing that runs. So the journal of a run can keep it,
and one that comes from somebody else's journal is drawn as safely as any other text.
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import (
    count_noun,
    describe_shape,
    format_count,
    format_number,
    plain,
    printable_repr,
)
from nbmodule.errors import ArgumentError, FileFormatError
from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.renderers.drawing import CLASSES, LINES, address_of, image_of
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.text_layout import Line, align

MOST_POINTS = 2000
"""Points of a map; of more an even selection is kept."""
MOST_CLASSES = 100
_PER_CELL = 6
"""Samples shown behind one cell of a confusion matrix."""
_PICTURE_SIDE = 96
_WIDTH = 110
_BORDER = "color-mix(in srgb, currentColor 25%, transparent)"
_QUIET = "font-size:11px;opacity:.75"


@dataclass(frozen=True)
class Media:
    """A display with the curves of a run, as `nb.samples`, `nb.confusion` and
    `nb.embedding_map` return it and `live.log` takes it.

    Attributes:
        form: `samples`, `confusion` or `points`.
        arrays: Its numbers.
        columns: Captions, a text for each sample.
        names: Names of the classes.
        facts: Numbers about the whole, such as the sampling rate of audio.
    """

    form: str
    arrays: Mapping[str, NDArray[Any]]
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Sequence[str] = ()
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays and texts."""
        texts = sum(len(text) for column in self.columns.values() for text in column)
        return sum(array.nbytes for array in self.arrays.values()) + texts

    def html(self) -> Markup:
        """Return it as HTML that needs no script."""
        return _FORMS[self.form][0](self)

    @printable_repr
    def __repr__(self) -> str:
        lines = [Line(tuple(row)) for row in _FORMS[self.form][1](self)]
        return "\n".join(align(lines, frozenset(), _WIDTH))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": str(self.html())}

    def to_bytes(self) -> bytes:
        """Pack it for a journal."""
        head = {"form": self.form, "names": [*self.names], "facts": dict(self.facts)}
        head["columns"] = {name: [*texts] for name, texts in self.columns.items()}
        file = io.BytesIO()
        arrays: dict[str, Any] = {"head": np.str_(json.dumps(head)), **self.arrays}
        np.savez_compressed(file, **arrays)
        return file.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> Media:
        """Unpack what `to_bytes` gave.

        Raises:
            FileFormatError: If it is something else.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            head = json.loads(str(arrays.pop("head")))
            media = Media(head["form"], arrays, head["columns"], head["names"], head["facts"])
            media._repr_mimebundle_()  # content that does not fit the form raises here
        except Exception as error:
            raise FileFormatError(f"cannot read logged media: {error}.") from error
        return media


def html_of_logged(value: str | Media | NDArray[Any]) -> Markup:
    """Return a logged text, `Media`, picture or array as HTML that needs no script, in small."""
    if isinstance(value, Media):
        return value.html()
    if isinstance(value, str):
        lines = [plain(line, 400) for line in value.splitlines()[:40]]
        return tag("pre", "\n".join(lines), class_="nbm-text")
    if value.dtype == np.uint8 and value.ndim == 3 and value.shape[-1] == 3:
        stride = max(1, -(-max(value.shape[:2]) // _PICTURE_SIDE))
        label = f"picture of {value.shape[1]} by {value.shape[0]} pixels"
        return _image(value[::stride, ::stride], label, 2 * _PICTURE_SIDE)
    return image_of(picture_of(value, side=48))


# -- samples ---------------------------------------------------------------------------------------
def samples(
    x: Any,
    labels: Any = None,
    predictions: Any = None,
    losses: Any = None,
    *,
    names: Sequence[str] = (),
    rate: int | None = None,
    most: int = 24,
) -> Media:
    """Collect samples of a batch with labels and predictions, the worst first, to view or to log.

    Args:
        x: Images `[n, height, width]` or `[n, height, width, channels]`, sounds `[n, time]` with
            `rate`, rows of numbers `[n, features]`, or a list of texts.
        labels: Class of each, or a text for each.
        predictions: Class of each, scores `[n, classes]`, or a text for each.
        losses: Loss of each; the largest come first. Without them wrong predictions come first.
        names: Names of the classes.
        rate: Samples a second; makes `x` a list of sounds.
        most: How many are kept.

    Raises:
        ArgumentError: If labels, predictions or losses are not one for each sample.

    Example:
        >>> worst = nb.samples(["a cat", "a dog"], [0, 1], [0, 0], [0.1, 2.0], names=["cat", "dog"])
        >>> print(worst)
        sample  label  prediction  loss  text
        1       dog    cat ✗       2     a dog
        0       cat    cat         0.1   a cat
    """
    count = len(x)
    true, predicted = _classes("labels", labels, count), _classes("predictions", predictions, count)
    is_wrong = [t != p for t, p in zip(true or [], predicted or [])] or [False] * count
    sizes = np.array(is_wrong if losses is None else losses, np.float64)
    if sizes.shape != (count,):
        raise ArgumentError(f"losses must have shape [{count}], got {list(sizes.shape)}.")
    order = np.argsort(-np.nan_to_num(sizes, nan=np.inf), kind="stable")[:most].tolist()
    columns = {"sample": [str(k) for k in order]}
    if true is not None:
        columns["label"] = [_class_name(true[k], names) for k in order]
    if predicted is not None:
        marks = [" ✗" if is_wrong[k] else "" for k in order]
        columns["prediction"] = [_class_name(predicted[k], names) + m for k, m in zip(order, marks)]
    if losses is not None:
        columns["loss"] = [format_number(float(sizes[k]), 3) for k in order]
    if isinstance(x, (list, tuple)) and all(isinstance(part, str) for part in x):
        columns["text"] = [plain(x[k], 400) for k in order]
        return Media("samples", {}, columns)
    data = np.asarray(x)[order]
    if rate is not None:
        return Media("samples", {"sounds": _sounds(data)}, columns, (), {"rate": rate})
    return Media("samples", {"images": _images(data)}, columns)


def _classes(argument: str, values: object, count: int) -> Sequence[Any] | None:
    """Return a class or text for each sample; of scores the class with the highest."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim == 2:
        array = array.argmax(axis=1) if array.shape[1] > 1 else array[:, 0]
    if array.shape != (count,):
        raise ArgumentError(
            f"{argument} must be one for each of {count_noun(count, 'sample')}, "
            f"got shape {list(array.shape)}."
        )
    return array.tolist()


def _class_name(value: object, names: Sequence[str]) -> str:
    if isinstance(value, int) and 0 <= value < len(names):
        return plain(names[value], 40)
    return format_number(value, 3) if isinstance(value, float) else plain(value, 400)


def _images(data: NDArray[Any]) -> NDArray[np.uint8]:
    """Return `[n, height, width]` or `[n, height, width, 3]` as bytes, on one scale for all."""
    if data.ndim == 4 and data.shape[-1] in (1, 4):
        data = data[..., 0] if data.shape[-1] == 1 else data[..., :3]
    if data.ndim < 3:
        data = data.reshape(len(data), 1, -1)
    if data.ndim != 3 and not (data.ndim == 4 and data.shape[-1] == 3):
        raise ArgumentError(
            "x must be images [n, height, width] or [n, height, width, channels] with 1, 3 or 4 "
            f"channels, sounds, rows or texts, got shape {list(data.shape)}."
        )
    if data.dtype == np.uint8:
        return data
    wide = data.astype(np.float64)
    finite = wide[np.isfinite(wide)] if np.isfinite(wide).any() else np.zeros(1)
    low, high = finite.min(), finite.max()
    scaled = np.nan_to_num((wide - low) / ((high - low) or 1.0), nan=0.0)
    return np.round(255 * scaled.clip(0.0, 1.0)).astype(np.uint8)


def _sounds(data: NDArray[Any]) -> NDArray[np.int16]:
    if data.ndim != 2:
        raise ArgumentError(f"sounds must have shape [n, time], got {list(data.shape)}.")
    if data.dtype == np.int16:
        return data
    wide = np.nan_to_num(data.astype(np.float64))
    return np.round(32767 * wide / max(float(np.abs(wide).max(initial=0)), 1.0)).astype(np.int16)


def _samples_text(media: Media) -> list[tuple[str, ...]]:
    return [tuple(media.columns), *zip(*media.columns.values())]


def _samples_html(media: Media) -> Markup:
    names = [name for name in media.columns if name not in ("sample", "text")]
    cards = []
    for k, number in enumerate(media.columns["sample"]):
        caption = [f"{name} {media.columns[name][k]}" for name in names]
        label = f"sample {number}: {', '.join(caption)}"
        parts = [_body(media, k, label), tag("div", f"sample {number}", style=_QUIET)]
        parts += [tag("div", line) for line in caption]
        width = 300 if "text" in media.columns or "sounds" in media.arrays else 104
        style = f"width:{width}px;margin:0;font-size:12px;overflow-wrap:anywhere"
        cards.append(tag("figure", *parts, style=style))
    return tag("div", *cards, style="display:flex;flex-wrap:wrap;gap:12px;max-width:100%")


def _body(media: Media, k: int, label: str) -> Markup:
    if "images" in media.arrays:
        return _image(media.arrays["images"][k], label, 96)
    if "sounds" in media.arrays:
        return _player(media.arrays["sounds"][k], int(media.facts["rate"]), label)
    return tag("div", media.columns["text"][k], style="white-space:pre-wrap")


def _image(pixels: NDArray[np.uint8], label: str, side: int) -> Markup:
    from PIL import Image  # matplotlib depends on it

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    size = f"width:{width * scale:.0f}px;height:{max(height * scale, 8):.0f}px"
    style = f"{size};image-rendering:{'pixelated' if scale > 1 else 'auto'}"
    return tag("img", src=address_of("image/png", file.getvalue()), alt=label, style=style)


def _player(sound: NDArray[np.int16], rate: int, label: str) -> Markup:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, rate, len(sound), "NONE", ""))
        writer.writeframes(sound.astype("<i2").tobytes())
    source = address_of("audio/wav", file.getvalue())
    return tag("audio", controls=True, src=source, aria_label=label, style="width:100%")


# -- a confusion matrix ----------------------------------------------------------------------------
def confusion(
    predictions: object, labels: object, *, names: Sequence[str] = (), x: object = None
) -> Media:
    r"""Count how often each class was predicted for each class: rows are labels.

    Args:
        predictions: Class of each sample, or scores `[n, classes]`.
        labels: Class of each sample.
        names: Names of the classes.
        x: Images of the samples; a click on a count shows some of them.

    Raises:
        ArgumentError: If the two differ in length, or hold something else than classes from 0.

    Example:
        >>> print(nb.confusion([0, 1, 1, 1], [0, 0, 1, 1], names=["cat", "dog"]))
        label \ prediction  right  cat  dog
        cat                 50%    1    1
        dog                 100%   0    2
    """
    true = np.asarray(labels)
    predicted = np.asarray(_classes("predictions", predictions, len(true)))
    for argument, values in (("labels", true), ("predictions", predicted)):
        if values.ndim != 1 or values.dtype.kind not in "iub" or (values < 0).any():
            raise ArgumentError(
                f"{argument} must be classes counted from 0, got {describe_shape(values)}."
            )
    size = max(len(names), int(max(true.max(initial=0), predicted.max(initial=0))) + 1)
    if size > MOST_CLASSES:
        raise ArgumentError(f"confusion takes at most {MOST_CLASSES} classes, got {size}.")
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (true.astype(int), predicted.astype(int)), 1)
    arrays: dict[str, NDArray[Any]] = {"counts": counts}
    if x is not None:
        cells = true.astype(int) * size + predicted.astype(int)
        shown = [np.flatnonzero(cells == cell)[:_PER_CELL] for cell in np.unique(cells)]
        chosen = np.concatenate([np.zeros(0, int), *shown])
        arrays |= {"images": _images(np.asarray(x)[chosen]), "cells": cells[chosen]}
        arrays["indices"] = chosen
    titles = [plain(names[k] if k < len(names) else k, 24) for k in range(size)]
    return Media("confusion", arrays, names=titles)


def _rates(counts: NDArray[np.integer]) -> NDArray[np.floating]:
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def _confusion_text(media: Media) -> list[tuple[str, ...]]:
    counts = media.arrays["counts"]
    rates = np.diagonal(_rates(counts))
    rows = [
        (name, f"{rate:.0%}", *map(format_count, row.tolist()))
        for name, row, rate in zip(media.names, counts, rates, strict=True)
    ]
    return [(r"label \ prediction", "right", *media.names), *rows]


def _confusion_html(media: Media) -> Markup:
    counts = media.arrays["counts"]
    rates = _rates(counts)
    head = [tag("th", name, scope="col", style="font-weight:normal") for name in media.names]
    rows = [tag("tr", tag("th", "label \\ prediction", scope="col"), *head, tag("th", "right"))]
    for i, name in enumerate(media.names):
        cells = [_confusion_cell(media, i, j, rates[i, j]) for j in range(len(media.names))]
        title = tag("th", name, scope="row", style="text-align:right;font-weight:normal")
        rows.append(tag("tr", title, *cells, tag("td", f"{rates[i, i]:.0%}")))
    right = float(np.trace(counts)) / max(float(counts.sum()), 1.0)
    about = f"{format_count(int(counts.sum()))} samples, {right:.1%} right"
    style = "border-collapse:separate;border-spacing:2px;font-size:12px;text-align:center"
    parts = [tag("div", about), tag("table", *rows, style=style)]
    return tag("div", *parts, style="overflow-x:auto;min-height:180px;max-width:100%")


def _confusion_cell(media: Media, i: int, j: int, rate: float) -> Markup:
    arrays, count = media.arrays, int(media.arrays["counts"][i, j])
    if not count:
        return tag("td", "·", style="opacity:.5")
    color = LINES[0] if i == j else LINES[1]
    style = f"padding:3px 8px;background:color-mix(in srgb, {color} {65 * rate:.0f}%, transparent)"
    text = tag("span", format_count(count), tag("br"), tag("span", f"{rate:.0%}", style=_QUIET))
    if "images" not in arrays:
        return tag("td", text, style=style)
    pictures = []
    for k in np.flatnonzero(arrays["cells"] == i * len(media.names) + j):
        image = _image(arrays["images"][k], f"sample {arrays['indices'][k]}", 72)
        pictures.append(tag("span", image, style="margin:3px"))
    label = f"label {media.names[i]}, prediction {media.names[j]}"
    box = "position:absolute;z-index:2;padding:6px;background:Canvas;color:CanvasText;"
    panel = tag("div", tag("div", label), *pictures, style=box + "border:1px solid;left:8px")
    summary = tag("summary", text, style="list-style:none;cursor:pointer", aria_label=label)
    return tag("td", tag("details", summary, panel), style=style)


# -- a map of points -------------------------------------------------------------------------------
def embedding_map(points: object, labels: object = None, *, names: Sequence[str] = ()) -> Media:
    """Draw vectors as points in a plane: their two principal components.

    Args:
        points: Vectors `[n, features]`, such as what a layer returns. Those of one or two features,
            as `sklearn.manifold.TSNE().fit_transform` returns them, are drawn as they are.
        labels: Class of each, which colors it.
        names: Names of the classes.

    Raises:
        ArgumentError: If `points` has another shape or is not finite.

    Example:
        >>> rows = jnp.array([[0.0, 0, 0], [1, 1, 0], [2, 2, 0]])
        >>> print(nb.embedding_map(rows))
        3 points, principal components with 100% and 0% of the variance
    """
    vectors = np.asarray(points, np.float64)
    if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():
        raise ArgumentError(
            f"points must be finite vectors [n, features], got shape {list(vectors.shape)}."
        )
    chosen = np.unique(np.linspace(0, len(vectors) - 1, MOST_POINTS).round().astype(int))
    classes = _classes("labels", labels, len(vectors))
    facts: dict[str, float] = {"count": len(vectors)}
    plane = vectors
    if vectors.shape[1] > 2:
        left, sizes, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        plane = (left * sizes)[:, :2]
        shares = np.pad(sizes**2 / max(float((sizes**2).sum()), 1e-300), (0, 2))
        facts |= {"first": float(shares[0]), "second": float(shares[1])}
    plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    arrays: dict[str, NDArray[Any]] = {"points": plane[chosen].astype(np.float32)}
    titles: list[str] = []
    if classes is not None:
        values, numbers = np.unique(np.asarray(classes), return_inverse=True)
        titles = [_class_name(value, names) for value in values.tolist()]
        arrays["classes"] = numbers[chosen].astype(np.int32)
    return Media("points", arrays, names=titles, facts=facts)


def _about_points(media: Media) -> str:
    drawn, count = len(media.arrays["points"]), int(media.facts["count"])
    text = f"{format_count(count)} points" + (f", {drawn} drawn" if drawn < count else "")
    if "first" in media.facts:
        first, second = media.facts["first"], media.facts["second"]
        text += f", principal components with {first:.0%} and {second:.0%} of the variance"
    return text


def _points_text(media: Media) -> list[tuple[str, ...]]:
    classes = [(f"classes: {', '.join(media.names[:12])}",)] if media.names else []
    return [(_about_points(media),), *classes]


def _points_html(media: Media) -> Markup:
    points = media.arrays["points"].astype(np.float64)
    classes = media.arrays.get("classes", np.zeros(len(points), int))
    span = np.ptp(points, axis=0)
    scaled = (points - points.min(axis=0)) / np.where(span > 0, span, 1.0)
    groups, legend = [], []
    for number in np.unique(classes).tolist():
        dots = [
            tag("circle", cx=f"{6 + 388 * x:.0f}", cy=f"{294 - 288 * y:.0f}", r="2.6")
            for x, y in scaled[classes == number].tolist()
        ]
        color = CLASSES[number % len(CLASSES)]
        if media.names:
            name = media.names[number]
            dots.insert(0, tag("title", name))
            legend.append(tag("span", tag("span", "● ", style=f"color:{color}"), name))
        groups.append(tag("g", *dots, fill=color, fill_opacity=".75"))
    about = _about_points(media)
    style = f"width:400px;max-width:100%;border:1px solid {_BORDER}"
    box = {"viewBox": "0 0 400 300", "role": "img", "aria_label": about}
    drawing = tag("svg", *groups, **box, style=style)
    row = tag("div", *legend, style="display:flex;flex-wrap:wrap;gap:10px;font-size:12px")
    return tag("div", tag("div", about, style="font-size:12px"), drawing, row)


_FORMS: dict[str, tuple[Callable[[Media], Markup], Callable[[Media], list[tuple[str, ...]]]]] = {
    "samples": (_samples_html, _samples_text),
    "confusion": (_confusion_html, _confusion_text),
    "points": (_points_html, _points_text),
}
"""HTML and rows of text of each form."""
