"""What `import nbmodule` costs beside `import jax`: CPU time of a whole process, in alternation."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

from benchmarks.timing import Row, Table

CODE = {
    "import jax": "import jax",
    "import nbmodule": "import nbmodule",
    "import nbmodule, first names": "import nbmodule; nbmodule.Module, nbmodule.Parameter, nbmodule.jit, nbmodule.value_and_grad",
}


def run(quick: bool = False) -> list[Table]:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    samples: dict[str, list[float]] = {name: [] for name in CODE}
    for _ in range(5 if quick else 11):
        for name, code in CODE.items():
            command = [sys.executable, "-c", f"{code}; import time; print(time.process_time())"]
            samples[name].append(
                float(
                    subprocess.run(
                        command, env=env, capture_output=True, text=True, check=True
                    ).stdout
                )
            )
    rows = []
    for name, found in samples.items():
        ratio = statistics.median(a / b for a, b in zip(found, samples["import jax"], strict=True))
        target = 1.15 if name != "import jax" else None
        rows.append(
            Row(
                name,
                1e6 * statistics.median(found),
                1e6 * statistics.median(found),
                ratio,
                ratio,
                target,
            )
        )
    return [Table("Import", rows, "import jax", "cpu", "CPU time of the whole process.")]
