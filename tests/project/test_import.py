"""What `import nbmodule` does to a clean interpreter, before and after every public name is loaded.

The package loads a name on first use, so the import alone would show little.
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


def test_a_model_and_its_optimizer_load_no_files_views_or_calls(run_python, tmp_path):
    code = f"""
        import json, sys
        import nbmodule as nb
        model, optimizer, step = nb.Sequential(nb.Conv2d(1, 2, 3), nb.ReLU()), nb.Adam(1e-3), nb.jit(lambda x: x)
        loaded = [name for name in sys.modules if name.startswith("nbmodule.")]
        model.save_weights({str(tmp_path / "weights.h5")!r})
        other = nb.Sequential(nb.Conv2d(1, 2, 3), nb.ReLU())
        other.load_weights({str(tmp_path / "weights.h5")!r})
        print(json.dumps([loaded, bool((other[0].weight == model[0].weight).all())]))
    """
    loaded, is_equal = json.loads(run_python(code))
    assert is_equal
    assert "nbmodule.nn.convolution" in loaded
    others = {"calls", "files", "graphs", "interop", "live", "views"}
    assert not others.intersection(name.split(".")[1] for name in loaded)
