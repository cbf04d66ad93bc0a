"""`python -m benchmarks [--only dispatch,train] [--quick] [--no-page]`: run the cases, each in a
process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import benchmarks.cases

PACKAGES = (
    "jax flax equinox dm-haiku optax treescope torch inox penzai orbax-checkpoint safetensors "
    "torchview torchvista h5py"
).split()


def versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def machine() -> str:
    """How many cores there are, and how busy they are now."""
    return f"on {os.cpu_count()} cores at a load of {os.getloadavg()[0]:.1f}"


def main() -> None:
    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.cases.__path__))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of cases, by comma: " + ", ".join(names))
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/performance.md")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args()
    from benchmarks import report

    if given.case:
        meta = {"versions": versions(), "machine": machine()}
        tables = importlib.import_module(f"benchmarks.cases.{given.case}").run(quick=given.quick)
        report.save(given.case, tables, meta)
        for table in tables:
            print(report.markdown(table), flush=True)
        return
    chosen = [name for name in names if not given.only or name in given.only.split(",")]
    failed = []
    for name in chosen:
        command = [sys.executable, "-m", "benchmarks", "--case", name] + (
            ["--quick"] if given.quick else []
        )
        if subprocess.run(
            command, env={"JAX_PLATFORMS": "cpu", **os.environ}, check=False
        ).returncode:
            failed.append(name)
    if not given.no_page:
        report.write_page()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
