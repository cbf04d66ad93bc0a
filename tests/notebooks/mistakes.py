"""Wrong answers to the exercises of the lessons, as people give them, and a part of what `nb.check`
says of each.
"""

from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    """A wrong answer: the source of the cell that is to be filled in.

    Attributes:
        lesson: The two digits with which its file begins.
        exercise: Counted from 1.
        answer: What a student writes.
        says: A part of what the check says of it.
    """

    lesson: str
    exercise: int
    answer: str
    says: str


MISTAKES = [
    Mistake("01", 1, "learned = 3 * 3 * 16 * 32 + 32", "close, but 4640 is too small"),
    Mistake(
        "01", 2,
        "def losses_of(scores, labels):\n    return nb.log_softmax(scores)[np.arange(len(labels)), labels]",
        "the sign is wrong",
    ),
    Mistake(
        "01", 3,
        "def confusion(read, labels):\n    table = np.zeros((10, 10), int)\n    np.add.at(table, (read, labels), 1)\n    return table",
        "the array is transposed",
    ),
    Mistake("02", 1, "def attention_received(weights):\n    return weights.mean(axis=2)", "the values differ"),
    Mistake(
        "02", 2,
        "def shares_of_zeros(calls):\n    return [(calls[f'blocks.{i}.mlp.1'].returns == 0).sum() for i in range(6)]",
        "times the expected one",
    ),
    Mistake("02", 3, "at_fault = 'blocks.0.mlp.0'", "'blocks.0.mlp.0' is another answer"),
    Mistake(
        "03", 1,
        "def share_moved(before, after):\n    return np.linalg.norm(np.ravel(after - before)) / np.linalg.norm(np.ravel(after))",
        "the values differ",
    ),
    Mistake("03", 2, "def strongest(maps):\n    return maps.sum(axis=(1, 2)).argmax(axis=-1)", "largest difference"),
    Mistake("04", 1, "by_hand = length * width * (4 * width) + length * (4 * width) * width", "is too small"),
    Mistake("04", 2, "between_letters = 4 * (2 * length * width * length + 2 * length * length * width)", "is too large"),
    Mistake(
        "05", 1,
        "def smooth(values, keep=0.9):\n    found = [0.0]\n    for value in values:\n"
        "        found.append(keep * found[-1] + (1 - keep) * value)\n    return found[1:]",
        "at [0]: expected",
    ),
    Mistake(
        "05", 2,
        "def has_settled(losses):\n    return bool(np.ptp(losses[-5:]) < 0.1)",
        "of 60 elements differ, the first at [0]",
    ),
    Mistake(
        "06", 1,
        "def as_container(leaves):\n    made = nb.Container()\n    for key, value in leaves.items():\n"
        "        _, layer, variable = key.split('.')\n        made[f'{layer}/{variable}'] = value\n    return made",
        "the structure differs",
    ),
    Mistake(
        "06", 2,
        "def step_of_scores(model, state, x, y):\n    definition, learned, rest = model.partition(lambda thing: thing is model.scores)\n"
        "    loss_of = lambda learned: nb.cross_entropy(definition(learned, rest)(x, state)[0], y)\n"
        "    return (learned['.scores.weight'] - 0.1 * jax.grad(loss_of)(learned)['.scores.weight']).T",
        "transposed it would be right",
    ),
    Mistake(
        "07", 1,
        "class Largest(nb.Module):\n    def __init__(self):\n        super().__init__()\n        self.largest = jnp.zeros(())\n\n"
        "    def forward(self, x):\n        return x / abs(x).max()",
        "[2]: every element is 8 times the expected one",
    ),
    Mistake(
        "07", 2,
        "def safe_step(x, y):\n    loss = train_step(scanned, optimizer, x, y)\n"
        "    return nb.cond(jnp.isfinite(x).all(), lambda: loss, lambda: jnp.nan)",
        "are not finite",
    ),
    Mistake(
        "08", 1,
        "def from_original(name, tensor):\n    array = source[name]\n    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array",
        "the values differ",
    ),
    Mistake("08", 2, "def mended(model):\n    model.head.bias = source['head.weight'][:, 0]\n    return model", "the values differ"),
    Mistake(
        "09", 1,
        "def previous_letter(weights):\n    return np.diagonal(weights, offset=-1, axis1=2, axis2=3).sum(axis=(0, 2))",
        "times the expected one",
    ),
    Mistake("09", 2, "def silence_first_head(module, inputs):\n    return inputs[0].at[..., 12:].set(0)", "the values differ"),
    Mistake("09", 3, "def mean_ablated(block, head):\n    return share_right()", "the values differ"),
    Mistake("10", 1, "shape_of_part = (256 // 4, 64 // 2)", "the values differ"),
    Mistake(
        "10", 2,
        "rules = {'encoder.*.linear1.weight': P('model', None), 'encoder.*.linear2.weight': P(None, 'model')}",
        "['linear1.bias']: ",
    ),
    Mistake(
        "10", 3,
        "def losses_with(rules, steps):\n    model = nb.shard(new_model(), grid, rules)\n"
        "    return train(model, steps=4, place=lambda batch: nb.shard_batch(batch, grid))[0]",
        "the shape is [4], expected is [5]",
    ),
    Mistake("11", 1,
        "def loss_without(head, texts):\n    with nb.patch(model, {path: nb.zero(head=1 - head)}):\n"
        "        return float(loss_of(model(texts[:, :-1]), texts))",
        "in another order",
    ),
    Mistake("11", 2, "best_loss = np.log(20)", "is too large"),
    Mistake("12", 1, "def gradient_times_input(x):\n    return nb.grad(lambda x: model(x)[0, 4])(x)", "the values differ"),
    Mistake("12", 2,
        "def integrated(x, pieces=300):\n    shares = ((np.arange(pieces, dtype=np.float32) + 0.5) / pieces)[:, None, None, None]\n"
        "    return x * nb.grad(lambda way: model(way)[:, 4].sum())(shares * x).sum(axis=0, keepdims=True)",
        "times the expected one",
    ),
    Mistake("13", 1, "found = 'norm/scale'", "'norm/scale' is another answer"),
    Mistake("13", 2, "most = 0.5", "0.5 is too large"),
    Mistake("14", 1,
        "def spikes(losses, window=20):\n    return [n for n in range(window, len(losses)) if losses[n] > losses[n - 1] + 0.5][:1]",
        "the structure differs",
    ),
    Mistake("14", 2, "def prepare_both(images):\n    return images / 16", "largest difference 254.9"),
    Mistake("15", 1, "gain_of_relu = 2", "2 is too large"),
    Mistake("15", 2, "def first_half(returns):\n    return int(np.argmin(returns))", "largest difference"),
    Mistake(
        "16", 1,
        "def stops_at(losses, patience):\n    return 1 + next(n for n in range(len(losses)) if n - np.argmin(losses[: n + 1]) >= patience)",
        "every element is 1 too large",
    ),
    Mistake(
        "16", 2,
        "def overconfidence(model):\n    p = nb.softmax(model(held_x))\n    return float((p.argmax(-1) == held_y).mean() - p.max(-1).mean())",
        "the sign is wrong",
    ),
    Mistake("17", 1, "begins = 'layers.0.act'", "'layers.0.act' is another answer"),
    Mistake("17", 2, "def causal_mask(length):\n    return np.tri(length, k=1, dtype=bool)", "5 of 36 elements differ, the first at [0, 1]"),
    Mistake("17", 3, "first = 'blocks.3.mlp.2'", "'blocks.3.mlp.2' is another answer"),
    Mistake("18", 1,
        "def momentum_by_hand(rate, steps=40):\n    place, velocity, places = np.array([-3.0, 1.0]), np.zeros(2), []\n    for _ in range(steps):\n"
        "        places.append(place)\n        velocity = 0.8 * velocity + np.array([1.0, 30.0]) * place\n"
        "        place = place - rate * velocity\n    return np.array(places)",
        "the shape is [40, 2], expected is [41, 2]",
    ),
    Mistake("18", 2, "first_move = [0.3 * 3.0, 0.3 * 30.0]", "the values differ"),
    Mistake("18", 3, "largest_rate = 1 / 30", "is too small"),
    Mistake("19", 1,
        "def convolve(image, kernel):\n    kernel = kernel[::-1, ::-1]\n    return np.array([[(image[r : r + 3, c : c + 3] * kernel).sum()\n"
        "        for c in range(image.shape[1] - 2)] for r in range(image.shape[0] - 2)])",
        "the sign is wrong",
    ),
    Mistake("19", 2, "def width_after(width, kernel, stride=1, padding=0):\n    return (width + 2 * padding - kernel) // stride", "every element is 1 too small"),
    Mistake("19", 3, "def field_of(layers):\n    return 1 + sum(kernel - 1 for kernel, _ in layers)", "largest difference 8 at [5]"),
    Mistake("20", 1, "rule_name = 'target-scale'", "'target-scale' is another answer"),
    Mistake("20", 2, "def noise_of(values):\n    return 2 * np.median(np.abs(np.diff(values)))", "too large"),
    Mistake("20", 3, "def standardize(table):\n    return (table - table.mean()) / table.std()", "the values differ"),
    Mistake("21", 1, "def best_rate(runs):\n    return runs.filter(width=8).sort('lr')[0].settings['lr']", "is too small"),
    Mistake("21", 2, "def stops_after(values, patience):\n    return int(np.argmin(values)) + 1", "is too large"),
    Mistake("21", 3, "def smooth(values):\n    return np.convolve(values, np.ones(5) / 5, mode='valid')", "the shape is"),
]  # fmt: skip
