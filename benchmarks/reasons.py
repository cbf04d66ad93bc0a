"""Reasons for missed targets: one sentence with figures for each, for the tables of
`docs/performance.md`.

`python -m benchmarks.report` writes them below the figures of the page.
"""

from __future__ import annotations

REASONS: dict[tuple[str, str], str] = {
    ("Tracking a training step, transformer", "statistics"): (
        "rounds differ by more than the excess: in the same rounds all returns took 0.95 of the plain "
        "step, and statistics with gradients 1.00."
    ),
    ("Tracking a training step, MLP", ""): (
        "entering the context and recording 51 calls takes 32 to 42 µs of Python beside a "
        "step of 224 µs, 0.6 to 0.8 µs per call; the counterparts of the peers take 1.06 "
        "(NNX) to 1.38 (Linen) of their own steps, hooks of PyTorch 2.2."
    ),
    ("Statistics of returns", "watched"): (
        "an observed array must be written to memory, which the plain pass avoids by fusion: of 4,096 "
        "features of a layer it writes 1,800. In another comparison, on a busy machine, six layers of "
        "width 256 took 1.09 of the CPU time in a pass and 1.07 in a step with gradients, the sample "
        "alone 1.03 and 1.02; norms without counts of non-finite values, 1.07 and 1.03. First calls "
        "took 1.8 of the plain ones for 395 kernels instead of 195: 1.5 with the sums alone, 1.35 "
        "with the sample alone."
    ),
    ("Compiled call, 10 leaves", ""): (
        "checking the paths to the model, lists of modules and arguments takes 0.8 µs more "
        "than JAX needs for nested dicts of 10 leaves; from 100 leaves on the call is faster "
        "than theirs."
    ),
    ("Compiled call, 100 leaves", ""): (
        "both medians are 47 µs; a ratio of 1.01 is half a microsecond, less than rounds differ by."
    ),
    ("Tracing a transformer", "nb.TransformerEncoder"): (
        "JAX traces the 1,092 operations of the model anew each time, which alone takes 0.74; the calls "
        "of 173 modules, the search for what the function uses and the program's key take 0.28. At 0.53, "
        "measured on 2026-11-22, equations were written into JAX's trace without JAX, which is no longer "
        "done."
    ),
    ("Step of an unconverted PyTorch model", "nb.track"): (
        "the hooks beside it reduce five figures; a histogram, zeros and numbers that are not finite, all "
        "counted over all elements, take 0.2 ms more for each of 17 returns."
    ),
    ("Training step of the digits network", "nb.Live"): (
        "recording and logging take 22 µs of a step of 0.7 ms, watching returns and updates "
        "30 µs more; steps of 15 ms, in the next table, show no difference."
    ),
    ("Training step of a 6-layer transformer", "nb.Live"): (
        "rounds differ by more than the excess: without watched returns the same run took 0.98 of the "
        "plain one, and with them 0.98 on 2026-11-25."
    ),
    ("Keeping steps", "keep=True"): (
        "keeping takes 23 µs of a step of 0.5 ms; longer steps show no difference."
    ),
    ("A step of", "nb.Live"): (
        "recording, watching and sending to the page take 40 µs of a step of 0.5 ms, and of "
        "longer steps by the time of the process 1 to 2 %; loops of a minute, measured on the "
        "same day, took 1.09 at 1.0 ms, 1.045 at 11 ms and 1.026 at 195 ms."
    ),
    ("Save 50", "nbmodule"): (
        "the bytes take as long as in the plain file; 3 of the 6 ms in excess replace the old file "
        "atomically, the others write a description and a checksum for each array."
    ),
    ("Save 1,000", "nbmodule"): (
        "each array takes 42 µs of CPU time, of which HDF5 takes 25 for a named dataset, and a "
        "description, a checksum and an index entry the others; a plain file has none of these. From "
        "1,001 arrays on they are packed."
    ),
    ("Save 10,000", "nbmodule"): (
        "each array has a description, a checksum and an entry in the index, 8 µs in all, and "
        "a plain file has none of these; safetensors takes 6.7 µs."
    ),
    ("Donated Adam step of a wrapped model", ""): (
        "the calling thread takes 8 to 16 µs more; the rest of the wall time is in XLA's threads, for "
        "which a native step of this size does not wait, although both compile to equally many "
        "fusions (90 each for Linen)."
    ),
    ("Flatten, 200 leaves", "nb.Module"): (
        "a registered node that does nothing at all takes 1.19, which is JAX's own, and reading the values of 200 variables the rest. Keeping "
        "the tuple of values would spare that for a model that does not change, and keep arrays beyond their time. A model that a raw step has "
        "returned still has its leaves, as its own row shows."
    ),
    ("Start of the process to the first trained step", "nbmodule"): (
        "importing JAX, tracing and compiling the same step by hand from NumPy arrays takes 0.43 of "
        "it in CPU time, more than the target allows; of nbmodule's part, the import takes 0.17 s and "
        "the model 0.07 s."
    ),
    ("Donated Adam step, 10", ""): (
        "finding the program and setting the variables takes 3 µs more than raw JAX at 10 "
        "leaves and 15 µs at 100; at 1,000 leaves the step is faster, 0.88."
    ),
    ("Donated Adam step, 3 x", "nb.jit, donate"): (
        "by less than rounds differ: 1.02 here, 0.94 under load an hour before. The program copies "
        "the same arrays as that of raw JAX, two weights and a number."
    ),
    ("Looking at a tree of 1,000", "nbmodule"): (
        "half of the time is for the statistics of all 1,000 leaves and the pictures of the "
        "first visible ones, and 37 of the 52 KB are the data with which the view opens and "
        "filters rows without a kernel; the peer takes 225 ms."
    ),
    ("Looking at a tree of 10", ""): (
        "each leaf takes 10 µs: its type, shape, placement and path are read from JAX, and "
        "its row is packed for the page; statistics and pictures are those of the first "
        "visible leaves alone."
    ),
    ("Looking at an array", "nbmodule"): (
        "18 KB are the static picture, and the rest the data with which the view works "
        "without a kernel; the time is that of passing over 16.8 million elements in 64 bits: "
        "0.2 s for statistics and the histogram, 0.07 s for the picture."
    ),
}
"""By the beginning of the table's title, and of the variant's name."""


def reason_of(title: str, variant: str) -> str:
    """The reason for a missed target; '' if none is known."""
    for (of_title, of_variant), reason in REASONS.items():
        if title.startswith(of_title) and variant.startswith(of_variant):
            return reason
    return ""
