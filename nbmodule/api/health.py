"""`nb.doctor()` and `python -m nbmodule doctor`: what is installed, which displays and which way of
stopping work here, and what to do.

Each finding is a fact with a verdict: fine, worth knowing, or broken with its cure. Nothing is
changed and nothing is sent.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from typing import Any, NamedTuple

from nbmodule.live.controls.pump import CommPump, running_kernel
from nbmodule.live.controls.route import find_route, is_marimo
from nbmodule.views.display.show import chosen_form
from nbmodule.views.renderers.text_layout import terminal_width

_WIDGETS = ("ipywidgets", "anywidget")
_PLACES = ("ipykernel", "jupyterlab", "notebook", "marimo")
_PLUGIN = re.compile(r"jax-cuda\d+-(?:plugin|pjrt)")
# For each extra of pyproject.toml that a user may want: what it is for, and its packages.
_EXTRAS = {
    "notebooks": (
        "JupyterLab and the notebooks of this project",
        (
            "jupyterlab",
            "ipykernel",
            "jupytext",
            "nbclient",
            "nbconvert",
            "nbformat",
            "scikit-learn",
        ),
    ),
    "checkpoint": ("checkpoints of sharded models", ("orbax-checkpoint",)),
    "interop": ("models of other libraries, in and out", ("flax", "equinox", "dm-haiku", "keras")),
    "live": ("progress bars and TensorBoard logs of nb.Live", ("tqdm", "tensorboardX")),
}


class Checked(NamedTuple):
    """One thing that was looked at."""

    section: str
    name: str
    found: str
    cure: str = ""
    """What to do; empty where all is well."""
    is_broken: bool = False
    """Whether something that should work does not; otherwise a cure is advice."""


class Report(tuple[Checked, ...]):
    """What `doctor` found, section by section."""

    __slots__ = ()

    @property
    def is_well(self) -> bool:
        """Whether nothing is broken."""
        return not any(finding.is_broken for finding in self)

    def __repr__(self) -> str:
        lines: list[str] = []
        width = max(len(finding.name) for finding in self)
        section = None
        for finding in self:
            if finding.section != section:
                section = finding.section
                lines.append(section)
            mark = "✗" if finding.is_broken else "·" if finding.cure else "✓"
            lines.append(f"  {mark} {finding.name.ljust(width)}  {finding.found}")
            if finding.cure:
                lines.append(f"    {' ' * width}  {finding.cure}")
        broken = sum(finding.is_broken for finding in self)
        lines.append("all is well" if not broken else f"{broken} to mend")
        return "\n".join(lines)


def doctor() -> Report:
    """Look at the place where this code runs: versions, device, kernel, displays, and how a running
    loop is stopped.

    Example:
        >>> report = nb.doctor()
        >>> report.is_well
        True
        >>> sorted({finding.section for finding in report})
        ['devices', 'displays', 'extras', 'running cells', 'versions']
    """
    parts: tuple[tuple[str, Callable[[], Iterator[Checked]]], ...] = (
        ("versions", _versions),
        ("devices", _devices),
        ("displays", _displays),
        ("running cells", _running_cells),
        ("extras", _extras),
    )
    return Report(finding for section, look in parts for finding in _safely(section, look))


def _safely(section: str, look: Callable[[], Iterator[Checked]]) -> Iterator[Checked]:
    """A part that fails is a finding too."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what the reader wants to know
        yield Checked(
            section,
            "could not look",
            f"{type(error).__name__}: {error}",
            "this is the first thing to mend",
            True,
        )


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _versions() -> Iterator[Checked]:
    yield Checked(
        "versions",
        "python",
        f"{platform.python_version()} on {platform.system()} {platform.machine()}",
    )
    yield Checked(
        "versions", "nbmodule", _installed("nbmodule") or "not installed, read from a folder"
    )
    for requirement in _required():
        found = _installed(requirement.name)
        wrong = found is None or not requirement.specifier.contains(found, prereleases=True)
        cure = f'`pip install "{requirement}"`' if wrong else ""
        yield Checked("versions", requirement.name, found or "missing", cure, wrong)
    yield from _jax_fits()


def _jax_fits() -> Iterator[Checked]:
    """Whether JAX behaves as the core builds on, and whether what comes with it is of the same
    release.
    """
    from nbmodule.base.jax_check import check_jax
    from nbmodule.base.jax_names import NEWEST_KNOWN

    found = _installed("jax") or ""
    try:
        check_jax()
    except ImportError as error:
        yield Checked("versions", "jax's behavior", "not what the core builds on", str(error), True)
    else:
        is_newer = not _is_at_least(f"{NEWEST_KNOWN}.99", found or "0")
        yield Checked(
            "versions",
            "jax's behavior",
            "proved by the self-check",
            f"newer than {NEWEST_KNOWN}, the last that the tests have seen; tell us what is odd"
            if is_newer
            else "",
        )
    jaxlib = _installed("jaxlib")
    for requirement in _asked_by("jax", "jaxlib"):
        wrong = jaxlib is None or not requirement.specifier.contains(jaxlib, prereleases=True)
        cure = (
            f'jax {found} wants another: `pip install "jax=={found}" "{requirement}"`'
            if wrong
            else ""
        )
        yield Checked("versions", "jaxlib", jaxlib or "missing", cure, wrong)
    for name, version_found in _plugins():
        wrong = version_found != jaxlib
        cure = (
            (
                "JAX does not use a plugin of another release than jaxlib: `pip install "
                f'"{name}=={jaxlib}"`'
            )
            if wrong
            else ""
        )
        yield Checked("versions", name, version_found, cure, wrong)


def _asked_by(package: str, name: str) -> list[Any]:
    """What an installed package asks of another, extras left out."""
    from packaging.requirements import Requirement

    try:
        found = [Requirement(line) for line in requires(package) or []]
    except PackageNotFoundError:
        return []
    return [each for each in found if each.name == name and each.marker is None]


def _plugins() -> list[tuple[str, str]]:
    """The parts of JAX for NVIDIA's GPUs that are installed, with their versions."""
    names = {
        found.name: found.version
        for found in distributions()
        if _PLUGIN.fullmatch(found.name.replace("_", "-"))
    }
    return sorted(names.items())


def _required() -> list[Any]:
    """What the package asks for, extras left out."""
    from packaging.requirements import Requirement

    try:
        lines = requires("nbmodule") or []
    except PackageNotFoundError:
        lines = ["jax", "numpy", "optax", "h5py", *_WIDGETS, "graphviz", "matplotlib"]
    return [found for found in map(Requirement, lines) if found.marker is None]


def _devices() -> Iterator[Checked]:
    import jax

    devices = jax.devices()
    kinds = sorted({device.device_kind for device in devices})
    yield Checked("devices", jax.default_backend(), f"{len(devices)} × {', '.join(kinds)}")
    if jax.default_backend() == "cpu" and shutil.which("nvidia-smi"):
        yield Checked(
            "devices", "gpu", "there is one that JAX does not use", '`pip install "jax[cuda13]"`'
        )
    folder = getattr(jax.config, "jax_compilation_cache_dir", None)
    yield Checked(
        "devices",
        "compiled programs",
        f"kept in {folder}" if folder else "kept while this process lives",
        ""
        if folder
        else (
            "`nb.cache_compiles()`, or JAX_COMPILATION_CACHE_DIR=~/.cache/jax, and the next "
            "start compiles nothing twice"
        ),
    )


def _displays() -> Iterator[Checked]:
    kernel, form = running_kernel(), chosen_form(None)
    if is_marimo():
        yield Checked(
            "displays",
            "here",
            "marimo: the static form",
            "fold and search work; a live view needs Jupyter",
        )
    elif kernel is not None:
        live = form == "auto"
        yield Checked(
            "displays",
            "here",
            "a notebook: " + ("HTML, joined to the kernel" if live else f"the {form} form"),
        )
    else:
        color = (
            "with color"
            if sys.stdout.isatty() and "NO_COLOR" not in os.environ
            else "without color"
        )
        yield Checked("displays", "here", f"no notebook: text, {terminal_width()} columns, {color}")
    if "NBMODULE_DISPLAY" in os.environ:
        yield Checked(
            "displays",
            "NBMODULE_DISPLAY",
            os.environ["NBMODULE_DISPLAY"],
            "unset it to let the place decide",
        )
    for name in _PLACES:
        if found := _installed(name):
            yield Checked("displays", name, found)
    if not any(_installed(name) for name in _PLACES):
        yield Checked(
            "displays",
            "notebooks",
            "none is installed",
            '`pip install "nbmodule[notebooks]"` brings JupyterLab',
        )
    dot = shutil.which("dot")
    yield Checked(
        "displays",
        "graphviz",
        (dot and "found") or "no program `dot`",
        "" if dot else "only .png and .pdf of graphs need it: install Graphviz",
    )


def _running_cells() -> Iterator[Checked]:
    kernel = running_kernel()
    pump = CommPump(kernel)
    route = find_route(pump, kernel)
    advice = (
        ""
        if route.has_buttons or kernel is None
        else "`pip install -U ipykernel`, then restart the kernel"
    )
    yield Checked("running cells", "stop and steer", route.text, advice)
    if kernel is None and (found := _installed("ipykernel")):
        seen = _is_at_least(found, "6.17.1")
        yield Checked(
            "running cells",
            "in a notebook",
            f"ipykernel {found}: "
            + ("buttons act between two steps" if seen else "too old to take clicks"),
            "" if seen else "`pip install -U ipykernel`",
        )


def _is_at_least(found: str, oldest: str) -> bool:
    from packaging.version import Version

    return Version(found) >= Version(oldest)


def _extras() -> Iterator[Checked]:
    for extra, (purpose, packages) in _EXTRAS.items():
        missing = [name for name in packages if not _installed(name)]
        have = [f"{name} {_installed(name)}" for name in packages if name not in missing]
        cure = f'for {", ".join(missing)}: `pip install "nbmodule[{extra}]"`' if missing else ""
        yield Checked("extras", extra, f"{purpose}: {', '.join(have) or 'not installed'}", cure)
