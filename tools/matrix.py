"""Run a suite in environments of given Pythons, JAXes and resolutions, and print what passed as a
table.

    python tools/matrix.py    # the smoke suite, in all environments that this machine can make
    python tools/matrix.py --python 3.13 --jax 0.9.2 newest --resolution newest
    python tools/matrix.py --python 3.11 --jax 0.8.0 --resolution lowest --suite tests/core
    python tools/matrix.py --jax newest --resolution newest --extra test --apart --suite tests/nn

An environment is a folder of packages under build/matrix that is put on the path of an interpreter,
so an interpreter needs no pip. Interpreters are looked for on the PATH and among pyenv's. `lowest`
takes the oldest version that pyproject.toml allows and that has a wheel.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
JAXES = ("0.8.0", "0.8.3", "0.9.2", "0.10.0", "newest")


class Interpreter(NamedTuple):
    """A Python."""

    version: str
    program: str

    def run(self, arguments: list[str], packages: Path) -> int:
        """Run it with these packages and the project on its path; its exit code."""
        settings = os.environ | {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{packages}",
            "PYTHONDONTWRITEBYTECODE": "1",
            # the templates of pages, which are no part of a Python package
            "JUPYTER_PATH": str(packages / "share" / "jupyter"),
        }
        command = [self.program, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=settings, stdout=sys.stderr, check=False)
        return done.returncode


def find_interpreter(version: str) -> Interpreter | None:
    """The newest interpreter of a minor version on the PATH or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    fetched = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    for program in [*map(str, fetched), shutil.which(f"python{version}")]:
        check = [program or "", "-c", "import ctypes"]
        if program and not subprocess.run(check, capture_output=True, check=False).returncode:
            bare = PLACE / f"python{version}"  # without packages that the interpreter itself has
            make = [program, "-m", "venv", "--without-pip", "--clear", str(bare)]
            subprocess.run(make, check=True)
            return Interpreter(version, str(bare / "bin" / "python"))
    return None


def uv() -> str:
    """The program that resolves for an interpreter that is not its own; fetched once."""
    tool = PLACE / "tool"
    if not (tool / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", str(tool)], check=True)
        fetch = [str(tool / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"]
        subprocess.run(fetch, check=True)
    return str(tool / "bin" / "uv")


def install(version: str, jax: str, resolution: str, extra: str) -> Path:
    """A folder with the packages of one environment; made anew each time, from uv's cache."""
    folder = PLACE / f"py{version}-jax{jax}-{resolution}-{extra}"
    shutil.rmtree(folder, ignore_errors=True)
    wanted = PLACE / "wanted.txt"
    wanted.write_text(
        f"nbmodule[{extra}] @ {ROOT.as_uri()}\n" + ("" if jax == "newest" else f"jax=={jax}\n")
    )
    strategy = "lowest-direct" if resolution == "lowest" else "highest"
    command = [uv(), "pip", "install", "--quiet", "--target", str(folder)]
    command += ["--python-version", version, "--only-binary", ":all:", "--no-binary", "nbmodule"]
    command += ["--resolution", strategy, "-r", str(wanted)]
    subprocess.run(command, check=True, env=os.environ | {"UV_LINK_MODE": "copy"})
    shutil.rmtree(folder / "nbmodule")  # the checkout itself is tested
    return folder


class Row(NamedTuple):
    """What one environment gave."""

    python: str
    jax: str
    resolution: str
    passed: int
    failed: int
    skipped: int
    seconds: float

    def __str__(self) -> str:
        cells = (*self[:3], *map(str, self[3:6]), f"{self.seconds:.0f} s")
        return "| " + " | ".join(cells) + " |"


HEAD = "| Python | JAX | resolution | passed | failed | skipped | time |\n| --- | --- | --- | --- | --- | --- | --- |"


def counted(report: Path) -> tuple[int, int, int]:
    """How many tests passed, failed and were skipped; a run that left no report, or collected
    nothing, failed once.
    """
    found = dict(ElementTree.parse(report).getroot()[0].attrib) if report.exists() else {}
    tests, skipped = int(found.get("tests", 0)), int(found.get("skipped", 0))
    failed = int(found.get("failures", 0)) + int(found.get("errors", 0)) if tests else 1
    return max(tests - failed - skipped, 0), failed, skipped


def measure(
    interpreter: Interpreter,
    jax: str,
    resolution: str,
    runs: list[list[str]],
    extra: str,
    flags: list[str],
) -> Row:
    """Make one environment and run each list of tests in it, in a process of its own."""
    packages = install(interpreter.version, jax, resolution, extra)
    (found,) = packages.glob("jax-*.dist-info")
    report = PLACE / f"{packages.name}.xml"
    started, results = time.monotonic(), []
    for suite in runs:
        report.unlink(missing_ok=True)
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        interpreter.run([*command, *flags, *suite], packages)
        results.append(counted(report))
        print(*suite, "passed, failed, skipped:", results[-1], file=sys.stderr, flush=True)
    passed, failed, skipped = map(sum, zip(*results))
    version = found.name.removeprefix("jax-").removesuffix(".dist-info")
    seconds = time.monotonic() - started
    return Row(interpreter.version, version, resolution, passed, failed, skipped, seconds)


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a test failed somewhere."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--python", nargs="*", default=PYTHONS, help="minor versions; missing ones are left out")
    add("--jax", nargs="+", default=JAXES, help="releases, or `newest`")
    both = ["lowest", "newest"]
    add("--resolution", nargs="+", default=both, choices=both)
    add("--extra", default="smoke", help="what is installed beside the package, such as `test`")
    add("--workers", default="2", help="how many tests at a time")
    add("--suite", nargs="+", help="files or folders of tests; by default the smoke suite")
    add("--apart", action="store_true", help="each file or folder in a process of its own")
    options = parser.parse_args(arguments)

    made = subprocess.run(
        ["make", "-s", "smoke-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    suite = options.suite or made.stdout.split()
    runs = [[each] for each in suite] if options.apart else [suite]
    flags = ["-n", options.workers, "--dist", "loadfile", "--max-worker-restart=0"]
    flags += ["-m", "not long and not chromium and not node"]
    PLACE.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for version in options.python:
        interpreter = find_interpreter(version)
        if interpreter is None:
            print(f"not on this machine: Python {version}", file=sys.stderr)
            continue
        for jax, resolution in itertools.product(options.jax, options.resolution):
            rows.append(measure(interpreter, jax, resolution, runs, options.extra, flags))
            print(rows[-1], file=sys.stderr, flush=True)
    print("\n".join([HEAD, *map(str, rows)]))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
