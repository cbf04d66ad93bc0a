"""The front door: names handed on one by one, each loaded when it is first asked for.

`nb.nn`, `nb.nn.functional` (also `nb.F`), `nb.optim` and `nb.errors` are rooms of their own; their
names are here too.
"""

from __future__ import annotations

from nbmodule import errors, nn, optim
from nbmodule.base import lazy
from nbmodule.base.version import __version__

_HOMES: dict[str, str] = {
    **nn._HOMES,
    "nbmodule.core.variables.variable": "Variable Parameter Buffer",
    "nbmodule.core.structure.functional": (
        "StateEntry StateKey export_state update_state merge_states"
    ),
    "nbmodule.core.structure.hooks": "HookHandle",
    "nbmodule.core.numbers.random": "RandomStream seed",
    "nbmodule.core.compiled.jit": "jit eval_shape make_jaxpr",
    "nbmodule.core.call.explain": "explain_retrace",
    "nbmodule.base.compiling": "cache_compiles",
    "nbmodule.core.transforms.differentiate": "grad value_and_grad execute_with_gradients",
    "nbmodule.core.transforms.mapped": "vmap scan",
    "nbmodule.core.transforms.stacked": "stack",
    "nbmodule.core.transforms.branching": "cond switch while_loop checkpoint",
    "nbmodule.core.structure.naming": "tree_repr",
    "nbmodule.tree.container": "Container",
    "nbmodule.files": "checkpoint_steps wait_for_saving",
    "nbmodule.api.graphs": "graph",
    "nbmodule.graphs": "Graph",
    "nbmodule.api.files": "save save_safetensors load save_checkpoint restore_checkpoint "
    "in_background",
    "nbmodule.api.health": "doctor",
    "nbmodule.calls.call": "Call",
    "nbmodule.calls.calls": "Calls",
    "nbmodule.calls.compare": "compare",
    "nbmodule.calls.differences": "check diff",
    "nbmodule.calls.kept": "load_calls",
    "nbmodule.calls.memory": "memory",
    "nbmodule.calls.nonfinite": "first_nonfinite",
    "nbmodule.calls.profile": "profile Profile",
    "nbmodule.calls.recorder": "Recorder",
    "nbmodule.calls.summary": "summary Summary",
    "nbmodule.calls.track": "tap track",
    "nbmodule.interventions.values": "zero to_mean from_example scale_by add_noise freeze skip "
    "Setting",
    "nbmodule.interventions.patch": "patch",
    "nbmodule.interventions.what_if": "what_if WhatIf",
    "nbmodule.interventions.sweep": "sweep Sweep trace_causes",
    "nbmodule.interventions.attribute": "attribute Attribution",
    "nbmodule.interventions.edit": "edit Edits",
    "nbmodule.scale": (
        "make_mesh shard shard_batch layout Layout data_parallel fsdp tensor_parallel join_hosts "
        "is_first_host"
    ),
    "nbmodule.interop.wrapping": "from_equinox from_flax from_haiku from_keras",
    "nbmodule.interop.torch_layers": "from_torch",
    "nbmodule.views": "show findings view_for display_all inspect Inspection plot LossCurve",
    "nbmodule.live.live": "Live",
    "nbmodule.live.diagnosis.rule": "RuleVerdict rule",
    "nbmodule.live.diagnosis.judge": "Diagnosis mute_rule",
    "nbmodule.live.diagnosis.examine": "check_setup",
    "nbmodule.live.runs.run": "last_run",
    "nbmodule.live.runs.listing": "compare_runs runs",
    "nbmodule.live.run_data.series": "no_improvement",
    "nbmodule.live.run_data.media": "Media confusion embedding_map samples",
    "nbmodule.live.controls.loop": "steps",
    "nbmodule.nn.batches": "batches",
    **nn._FUNCTIONS,
    "nbmodule.nn.initializers": (
        "Initializer Constant Zeros Ones RandomNormal TruncatedNormal Orthogonal Uniform "
        "GlorotUniform GlorotNormal KaimingUniform KaimingNormal LecunNormal FirstLayerSiren "
        "Siren"
    ),
    **optim._HOMES,
    "nbmodule.errors": " ".join(errors.__all__),
}
_ROOMS = {
    "nn": "nbmodule.nn",
    "F": "nbmodule.nn.functional",
    "optim": "nbmodule.optim",
    "errors": "nbmodule.errors",
}
_ALIASES = nn._ALIASES

__getattr__, __dir__, __all__ = lazy.hand_on(__name__, _HOMES, _ROOMS, _ALIASES)
