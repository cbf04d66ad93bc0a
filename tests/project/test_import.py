"""What `import nbmodule` does to a clean interpreter, also once every public name has been asked for.

The front door loads a name when it is first asked for, so the import alone would tell little.
"""

from __future__ import annotations

import json

HEAVY = [
    "IPython", "anywidget", "equinox", "flax", "graphviz", "h5py", "haiku", "ipywidgets", "keras", "matplotlib",
    "optax", "orbax", "safetensors", "scipy.stats", "sklearn", "torch", "traitlets",
]  # fmt: skip


def test_importing_nbmodule_imports_nothing_heavy(run_python):
    code = """
        import json, sys
        import jax
        before = set(sys.modules)
        import nbmodule
        for name in nbmodule.__all__:
            getattr(nbmodule, name)
        print(json.dumps(sorted(set(sys.modules) - before)))
    """
    assert not set(json.loads(run_python(code))) & set(HEAVY)


def test_importing_nbmodule_starts_no_device(run_python):
    code = """
        import nbmodule
        for name in nbmodule.__all__:
            getattr(nbmodule, name)
        from jax._src import xla_bridge
        print(len(xla_bridge._backends))
    """
    assert run_python(code) == "0"
