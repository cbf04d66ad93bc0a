"""The words of neighboring frameworks, in one place: what they mean here, and what to say where they mean nothing.

PyTorch, Flax, Equinox, Keras and Haiku have other words for some of what is here. Where the meaning is the same, the word is taken
as an argument of a constructor or a function (`SAME`); the name here stays the one that `repr` and the documentation use. Where it is not the
same or has no place here, the message knows the word and says what to do (`NAMES`, `ATTRIBUTES`, `ARGUMENTS`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentError, ArgumentTypeError

# -- arguments ---------------------------------------------------------------------------------------
# The name of an argument here, and the neighbors' names for the same. A word counts only where a constructor or function has
# that argument and has none of the word's own name; of several the first counts.
SAME: dict[str, str] = {
    "with_bias": "bias use_bias",
    "rate": "p",
    "dropout_rate": "dropout dropout_p",
    "x": "input inputs",
    "in_features": "input_size in_dim",
    "out_features": "units output_size out_dim",
    "hidden_features": "hidden_size dim_feedforward units",
    "features": "embed_dim d_model",
    "num_heads": "nhead heads",
    "num_kv_heads": "num_key_value_heads n_kv_heads",
    "key_features": "kdim",
    "value_features": "vdim",
    "in_channels": "in_features",
    "out_channels": "out_features filters",
    "kernel_size": "pool_size window_shape",
    "stride": "strides",
    "dilation": "kernel_dilation dilation_rate",
    "groups": "feature_group_count",
    "num_embeddings": "input_dim vocab_size",
    "embedding_dim": "output_dim features",
    "normalized_shape": "shape num_features",
    "affine": "elementwise_affine",
    "return_sequence": "return_sequences",
    "final_norm": "norm",
    "start_axis": "start_dim",
    "end_axis": "end_dim",
    "axis": "dim",
    "weight_initializer": "kernel_init kernel_initializer w_init embedding_init embeddings_initializer",
    "bias_initializer": "bias_init b_init",
    "key": "seed",
    "dtype": "param_dtype",
    "eps": "epsilon",
    # of optimizers
    "epsilon": "eps",
    "lr": "learning_rate",
    "beta1": "b1 beta_1",
    "beta2": "b2 beta_2",
    "decay": "alpha rho",
}
# Arguments that are the rule here, or change nothing about the result: the values with which they are passed over.
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "inplace": (True, False),
    "batch_first": (True,),
    "padding_mode": ("zeros",),
    "amsgrad": (False,),
    "maximize": (False,),
    "foreach": (True, False, None),
    "fused": (True, False, None),
    "capturable": (False,),
    "differentiable": (False,),
    "dampening": (0,),
    "return_indices": (False,),
    "add_bias_kv": (False,),
    "add_zero_attn": (False,),
}
# Values with another spelling, by the argument here.
VALUES: dict[str, dict[str, Any]] = {"approximate": {"tanh": True, "none": False}}
# Arguments that PyTorch's users give by position, after the last one that is positional here (None: there is none).
BY_POSITION: dict[str | None, tuple[str, ...]] = {
    "kernel_size": ("stride", "padding"),
    "out_features": ("with_bias",),
    "hidden_features": ("num_layers",),
    "num_features": ("eps", "momentum"),
    "normalized_shape": ("eps",),
    None: ("negative_slope", "alpha", "axis", "inplace"),
    # of functions
    "x": ("negative_slope", "alpha", "type", "n", "axis", "norm", "beta", "eps", "inplace"),
    "x2": ("axis", "eps"),
    "bias": ("stride", "padding"),
    "size": ("scale_factor", "mode", "align_corners", "alpha", "beta", "k"),
}
# Arguments that have no place here, and the cure.
ARGUMENTS: dict[str, str] = {
    "rngs": "Random numbers come from one stream: leave it out and call nb.seed(0) once, or give key=",
    "params": "Optimizers here hold no parameters: leave them out, and call optimizer.update(model, grads). A "
    "transformation of optax goes into nb.Optax(transformation)",
    "batch_first": "Batches come first here, as in (batch, time, features): swap the first two axes of the input",
    "padding_mode": "Pad before the layer with jnp.pad(x, ..., mode=...), which knows the same modes",
    "activation": "Put the activation behind the layer, as in nb.Sequential(nb.Linear(3, 4), nb.ReLU()) or nb.relu(layer(x))",
    "input_shape": "Shapes are given where they belong: the size of the input is the first argument of the layer",
    "name": "A layer is named by the attribute that holds it",
    "use_running_average": "model.eval() uses the running statistics, model.train() those of the batch",
    "training": "model.train() and model.eval() choose the mode",
    "deterministic": "model.eval() turns dropout off, model.train() turns it on",
    "return_indices": "nb.max_pool2d gives values alone",
    "amsgrad": "nb.Optax(optax.amsgrad(lr)) has that rule",
    "maximize": "Give the negative of the value to nb.grad",
    "proj_size": "Put an nb.Linear behind the layer",
    "clipnorm": "Clip before the step: grads = nb.clip_by_global_norm(grads, 1.0)",
    "use_scale": "affine=False leaves out both weight and bias",
    "attn_mask": "mask= is True where a position is read, as in PyTorch's function; its layers mean the opposite",
}
# Arguments whose place elsewhere another thing has, and the cure.
TAKEN: dict[str, str] = {
    "lr": ARGUMENTS["params"],
    "num_layers": "The layers are made here, from numbers: nb.TransformerEncoder(num_layers, features, num_heads)",
}
# Arguments that have to be given here and are not given elsewhere, and where they come from.
NEEDED: dict[str, str] = {
    "key": "Give key=jax.random.key(0), or let the layer draw one, as nb.Dropout(0.5) does in training",
}


def teach(kind: type) -> None:
    """Let the constructor of a class take the neighbors' words; called when a class of the library is made."""
    made = vars(kind).get("__init__")
    if not inspect.isfunction(made) or not is_ours(kind):
        return

    @functools.wraps(made)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        known = arguments(type(self) if type(self).__init__ is __init__ else kind)
        if (kwargs and (kwargs.keys() - known.named or kwargs.keys() & known.watched(len(args)))) or len(
            args
        ) > known.count:
            args, kwargs = translated(type(self).__name__, known, args, kwargs)
        made(self, *args, **kwargs)

    type.__setattr__(kind, "__init__", __init__)


def _takes_any(fn: Any) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(fn).parameters.values())


def is_ours(kind: Callable[..., Any]) -> bool:
    """Whether a class or a function is of this package; a user's own are left as they are."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


class Arguments:
    """The arguments of a constructor or a function: those by position, all by name, and whether it takes any others."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        parameters = list(inspect.signature(kind).parameters.values())
        self.positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        self.many = any(each.kind is each.VAR_POSITIONAL for each in parameters)
        self.named = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
        self.count = len(self.positional)
        self.ending, self.undone = ("", "Nothing was computed.")
        self.open = False  # else it tells by itself what it does not know
        if isinstance(kind, type):
            self.ending, self.undone = (".__init__", "Nothing was made.")
            self.open = _takes_any(kind.__init__)
            if _takes_any(kind) and not self.many:
                self._ask_base(kind)

    def watched(self, count: int) -> set[str]:
        """Names that want a second look: those given by position already, and those whose values have other spellings."""
        return {*self.positional[:count], *VALUES}

    def are_foreign(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether some of what was given has a name, a place or a spelling that is not the one here."""
        spelled = (kwargs.get(name) in words for name, words in VALUES.items() if isinstance(kwargs.get(name), str))
        return len(args) > self.count or not kwargs.keys() <= self.named or any(spelled)

    def _ask_base(self, kind: type) -> None:
        """What a constructor hands on to the next one."""
        _, base, *_ = [each for each in kind.__mro__ if "__init__" in vars(each)]
        if (
            is_ours(base) and not arguments(base).named <= self.named
        ):  # else they go elsewhere, to the parts of this one
            self.named, self.open = self.named | arguments(base).named, arguments(base).open


@functools.cache
def arguments(kind: Callable[..., Any]) -> Arguments:
    """The arguments of a function, or of the constructor of a class."""
    return Arguments(kind)


def translated(
    where: str, known: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with the names and values that the constructor or function has."""
    args, named = _named(where, known, args, kwargs)
    given: dict[str, str] = {}
    result: dict[str, Any] = {}
    for word, value in named.items():
        name = _meaning(where, known, word, value)
        if name is None:
            continue
        if name in known.positional[: len(args)]:
            cure = f" {TAKEN[name]}." if name in TAKEN else ""
            raise ArgumentTypeError(f"{where}: {name} was given by position and as {word}=. {known.undone}{cure}")
        if name in given:
            raise ArgumentError(
                f"{where}: {given[name]}= and {word}= mean the same, and both were given. {known.undone} Leave one out."
            )
        given[name] = word
        result[name] = VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value
    return args, _without_pairs(result, known)


def _named(
    where: str, known: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position that have only names here, by those names."""
    count = known.count
    if known.many or len(args) <= count:
        return args, dict(kwargs)
    after = BY_POSITION.get(known.positional[-1] if known.positional else None, ())
    names = [name for name in after if name in known.named or name == "inplace"]
    if len(args) > count + len(names):
        taken = ", ".join([*known.positional, *names]) or "none"
        raise ArgumentTypeError(
            f"{where} takes its arguments by position as far as: {taken}; found {len(args)}. {known.undone} Name the others."
        )
    further = dict(zip(names, args[count:]))
    for name in further.keys() & kwargs.keys():
        raise ArgumentTypeError(f"{where}: {name} was given by position and by name. {known.undone}")
    return args[:count], further | dict(kwargs)


def _meaning(where: str, known: Arguments, word: str, value: Any) -> str | None:
    """The name here of an argument; None for one that changes nothing."""
    if word in known.named:
        return word
    if word == "betas" and {"beta1", "beta2"} <= known.named:
        return word
    for name, words in SAME.items():
        if name in known.named and word in words.split():
            return name
    if word in WITHOUT_EFFECT and any(_is_same(value, each) for each in WITHOUT_EFFECT[word]):
        return None
    if known.open:
        return word
    cure = ARGUMENTS.get(word)
    if cure is None:
        raise ArgumentTypeError(
            f"{where}{known.ending}() got an unexpected keyword argument '{word}'{hint(word, known.named)} {known.undone}"
        )
    raise ArgumentTypeError(f"{where} takes no {word}=. {known.undone} {cure}.")


def _is_same(value: Any, known: Any) -> bool:
    """Whether two plain values are the same; the number 1 is not the flag True."""
    return value is known or (isinstance(value, bool) == isinstance(known, bool) and value == known)


def _without_pairs(named: dict[str, Any], known: Arguments) -> dict[str, Any]:
    """`betas=(0.9, 0.999)` as two numbers."""
    if "betas" in named and "betas" not in known.named:
        first, second = named.pop("betas")
        named = {"beta1": first, "beta2": second, **named}
    return named


# -- names -------------------------------------------------------------------------------------------
# Names that a neighbor has on its front door, and what stands for them here.
NAMES: dict[str, str] = {
    "ModuleList": "a plain list of modules will do, as in self.layers = [nb.Linear(4, 4), nb.Linear(4, 4)]",
    "ModuleDict": "a plain dict of modules will do, as in self.heads = {'a': nb.Linear(4, 4)}",
    "ParameterList": "a plain list of nb.Parameter will do",
    "ParameterDict": "a plain dict of nb.Parameter will do",
    "List": "a plain list of modules will do",
    "Dict": "a plain dict of modules will do",
    "Param": "use nb.Parameter(array)",
    "BatchStat": "use nb.Buffer(array)",
    "Model": "derive from nb.Module and define forward",
    "Layer": "derive from nb.Module and define forward",
    "Dense": "use nb.Linear(in_features, out_features)",
    "Embed": "use nb.Embedding(num_embeddings, embedding_dim)",
    "Conv": "use nb.Conv1d, nb.Conv2d or nb.Conv3d(in_channels, out_channels, kernel_size)",
    "ConvTranspose": "use nb.ConvTranspose1d, nb.ConvTranspose2d or nb.ConvTranspose3d",
    "Conv2DTranspose": "use nb.ConvTranspose2d(in_channels, out_channels, kernel_size)",
    "BatchNorm": "use nb.BatchNorm1d, nb.BatchNorm2d or nb.BatchNorm3d(num_features); momentum is the share of the new value here, 0.1 "
    "for the 0.9 of Flax, Haiku and Keras",
    "BatchNormalization": "use nb.BatchNorm2d(num_features); momentum is the share of the new value here, 0.01 for Keras' 0.99",
    "SyncBatchNorm": "use nb.BatchNorm2d(num_features, axis_name=...)",
    "LayerNormalization": "use nb.LayerNorm(normalized_shape)",
    "GroupNormalization": "use nb.GroupNorm(num_groups, num_channels)",
    "InstanceNorm1d": "use nb.InstanceNorm(num_features)",
    "InstanceNorm2d": "use nb.InstanceNorm(num_features)",
    "MultiheadAttention": "use nb.MultiHeadAttention(features, num_heads), called as attention(query, key, value)",
    "MultiHeadDotProductAttention": "use nb.MultiHeadAttention(features, num_heads)",
    "Transformer": "use nb.TransformerEncoder and nb.TransformerDecoder",
    "MaxPooling1D": "use nb.MaxPool1d(kernel_size)",
    "MaxPooling2D": "use nb.MaxPool2d(kernel_size)",
    "AveragePooling2D": "use nb.AvgPool2d(kernel_size)",
    "GlobalAveragePooling1D": "use x.mean(axis=1)",
    "GlobalAveragePooling2D": "use nb.AdaptiveAvgPool2d(1), or x.mean(axis=(1, 2))",
    "GlobalMaxPooling2D": "use x.max(axis=(1, 2))",
    "AdaptiveMaxPool2d": "use x.max(axis=(1, 2)) where one value for each channel is wanted",
    "max_pool": "use nb.max_pool1d, nb.max_pool2d or nb.max_pool3d",
    "avg_pool": "use nb.avg_pool1d, nb.avg_pool2d or nb.avg_pool3d",
    "Activation": "use the layer of that name, such as nb.ReLU()",
    "Swish": "use nb.SiLU()",
    "swish": "use nb.silu",
    "Hardtanh": "use nb.Lambda(jax.nn.hard_tanh)",
    "Unflatten": "use x.reshape(...)",
    "Reshape": "use x.reshape(...)",
    "Concatenate": "use jnp.concatenate(arrays, axis=-1)",
    "Add": "use x + y",
    "Input": "not needed: a module is called with arrays, and the size of the input is the first argument of a layer",
    "InputLayer": "not needed: a module is called with arrays",
    "MLP": "use nb.Sequential(nb.Linear(2, 8), nb.ReLU(), nb.Linear(8, 1))",
    "Einsum": "use nb.Parameter and jnp.einsum in forward",
    "ZeroPad2d": "use jnp.pad",
    "ZeroPadding2D": "use jnp.pad",
    # losses
    "CrossEntropyLoss": "use the function nb.cross_entropy(prediction, target)",
    "NLLLoss": "use nb.cross_entropy(prediction, target) on logits, without log_softmax before it",
    "nll_loss": "use nb.cross_entropy(prediction, target) on logits, without log_softmax before it",
    "MSELoss": "use the function nb.mse_loss(prediction, target)",
    "L1Loss": "use the function nb.mae_loss(prediction, target)",
    "l1_loss": "use nb.mae_loss(prediction, target)",
    "HuberLoss": "use the function nb.huber_loss(prediction, target)",
    "SmoothL1Loss": "use the function nb.huber_loss(prediction, target)",
    "smooth_l1_loss": "use nb.huber_loss(prediction, target)",
    "BCELoss": "use the function nb.binary_cross_entropy(prediction, target, from_logits=False)",
    "BCEWithLogitsLoss": "use the function nb.binary_cross_entropy(prediction, target, from_logits=True)",
    "binary_cross_entropy_with_logits": "use nb.binary_cross_entropy(prediction, target, from_logits=True)",
    "KLDivLoss": "use the function nb.kl_div(prediction, target)",
    "CTCLoss": "use the function nb.ctc_loss",
    "SparseCategoricalCrossentropy": "use the function nb.cross_entropy(prediction, target), which takes class numbers",
    "CategoricalCrossentropy": "use the function nb.cross_entropy(prediction, target), which takes probabilities too",
    "softmax_cross_entropy": "use nb.cross_entropy(prediction, target)",
    "softmax_cross_entropy_with_integer_labels": "use nb.cross_entropy(prediction, target)",
    # gradients and transforms
    "no_grad": "not needed: nothing is recorded for gradients unless nb.grad or nb.value_and_grad asks",
    "inference_mode": "call model.eval(), which gives the model back; nothing is recorded for gradients unless nb.grad asks",
    "set_grad_enabled": "not needed: nothing is recorded for gradients unless nb.grad asks",
    "enable_grad": "not needed: nb.grad and nb.value_and_grad compute gradients",
    "autograd": "use nb.grad or nb.value_and_grad",
    "GradientTape": "use nb.value_and_grad(loss)(model, x)",
    "filter_jit": "use nb.jit, which takes modules as they are",
    "filter_grad": "use nb.grad, which takes modules as they are",
    "filter_value_and_grad": "use nb.value_and_grad, which takes modules as they are",
    "filter_vmap": "use nb.vmap, which takes modules as they are",
    "apply_updates": "use optimizer.update(model, grads)",
    "tree_at": "assign, as in model.weight = array",
    "is_array": "variables are nb.Parameter and nb.Buffer: model.partition(nb.Parameter) filters by kind",
    "is_inexact_array": "variables are nb.Parameter and nb.Buffer: model.partition(nb.Parameter) filters by kind",
    "partition": "use model.partition(nb.Parameter)",
    "combine": "call the definition that model.partition gave, as in definition(*leaves)",
    "tree_serialise_leaves": "use model.save_weights(path)",
    "tree_deserialise_leaves": "use model.load_weights(path)",
    "split": "use model.partition(nb.Parameter), or nb.export_state(model)",
    "merge": "call the definition that model.partition gave, as in definition(*leaves)",
    "state": "use model.v for the parameters, model.state_dict() for all variables",
    "clone": "use copy.deepcopy(model)",
    "Rngs": "not needed: call nb.seed(0) once; nb.RandomStream(0) is a stream of its own",
    "ModelAndOptimizer": "use nb.Optax(optax.adam(1e-3)), then optimizer.update(model, grads)",
    "MultiMetric": "use live.log(loss=loss) with nb.Live(model)",
    "display": "use nb.show(model)",
    "tabulate": "use nb.summary(model, x)",
    "remat": "use nb.checkpoint",
    "pmap": "use nb.shard with a mesh, then nb.jit",
    "transform": "not needed: nb.Module holds its variables; model(x, v=v) is the pure form",
    "transform_with_state": "not needed: nb.Module holds its variables; nb.export_state gives them",
    "without_apply_rng": "not needed: nb.Module holds its variables; model(x, v=v) is the pure form",
    "get_parameter": "use nb.Parameter(array) as an attribute of the module",
    "next_rng_key": "use nb.RandomStream(0) as an attribute of the module, and its draw()",
    "compact": "not needed: layers are made in __init__, or in _build with build_mode='on_call'",
    # data and training
    "tensor": "use jnp.asarray",
    "Tensor": "arrays are those of JAX: use jnp.asarray",
    "from_numpy": "use jnp.asarray",
    "device": "devices are named by text, as in model.to('cpu:0'), or are those of jax.devices()",
    "manual_seed": "use nb.seed(0)",
    "set_random_seed": "use nb.seed(0)",
    "DataLoader": "use nb.batches((x, y), 64), which also takes a DataLoader of PyTorch",
    "TensorDataset": "use nb.batches((x, y), 64)",
    "compile": "use nb.jit(function) or model.compile()",
    "clip_grad_norm_": "use grads = nb.clip_by_global_norm(grads, 1.0)",
    "lr_scheduler": "the learning rate may be a schedule, as in nb.Adam(lr=nb.cosine_schedule(1e-3, 1000))",
    "StepLR": "the learning rate may be a schedule, as in nb.SGD(lr=nb.step_schedule(0.1, {30: 0.1}))",
    "CosineAnnealingLR": "the learning rate may be a schedule, as in nb.Adam(lr=nb.cosine_schedule(1e-3, 1000))",
    "ExponentialDecay": "the learning rate may be a function of the step, such as optax.exponential_decay(...)",
    "init": "initializers are nb.KaimingNormal(), nb.Orthogonal(), ..., given as weight_initializer=",
    "Adadelta": "use nb.Optax(optax.adadelta(lr))",
    "Adamax": "use nb.Optax(optax.adamax(lr))",
    "NAdam": "use nb.Optax(optax.nadam(lr))",
    "Nadam": "use nb.Optax(optax.nadam(lr))",
    "LBFGS": "use nb.Optax(optax.lbfgs())",
    "adam": "use nb.Adam(lr)",
    "sgd": "use nb.SGD(lr)",
    "one_hot": "use jax.nn.one_hot",
    "normalize": "use x / jnp.linalg.norm(x, axis=-1, keepdims=True)",
    "dot_product_attention": "use nb.scaled_dot_product_attention",
    "layers": "layers are in nb.nn and on the front door, as nb.Linear",
    "losses": "losses are functions, such as nb.cross_entropy(prediction, target)",
    "optimizers": "optimizers are in nb.optim and on the front door, as nb.Adam",
    "initializers": "initializers are in nb.nn.initializers and on the front door, as nb.GlorotUniform()",
    "utils": "its parts are on the front door: nb.clip_by_global_norm, nb.batches",
    "cuda": "JAX takes an accelerator by itself where there is one; jax.devices() lists them",
    "flatten": "use x.reshape(len(x), -1), or the layer nb.Flatten()",
    "callbacks": "write the loop: what a callback does stands in it; nb.Live(model) shows how it goes",
    "datasets": "no data comes with it: nb.batches takes arrays, a DataLoader of PyTorch, and data sets with len and indices",
    "metrics": "compute them in the loop with jax.numpy, and show them by live.log(accuracy=value)",
    "Trainer": "write the loop: for x, y in live.steps(nb.batches((x, y), 64)): ..., with live = nb.Live(model)",
}


def no_such_name(package: str, name: str, names: Iterable[str]) -> str:
    """What to tell a user who has asked a package for a name that it has not."""
    short = package.replace("nbmodule", "nb", 1)
    if name in NAMES:
        return f"{short} has no {name}: {NAMES[name]}."
    return f"{short} has no name {name!r}{hint(name, names)}"


# -- attributes --------------------------------------------------------------------------------------
TRAINING = "loss, grads = nb.value_and_grad(loss_function)(model), then optimizer.update(model, grads)"
_NO_GRADIENTS_KEPT = "not needed: gradients are returned by nb.grad, and none are kept"
# Methods that a neighbor's models and optimizers have, and what stands for them here.
ATTRIBUTES: dict[str, str] = {
    "zero_grad": _NO_GRADIENTS_KEPT,
    "backward": f"write {TRAINING}",
    "minimize": f"write {TRAINING}",
    "apply_gradients": f"write {TRAINING}",
    "copy": "copy.deepcopy(model) copies a model, model.v.copy() its variables",
    "clone": "copy.deepcopy(model) copies a model, model.v.copy() its variables",
    "fit": f"write the loop: for x, y in nb.batches((x, y), 64), in it {TRAINING}; nb.Live(model) shows it",
    "fit_generator": f"write the loop, in it {TRAINING}",
    "train_on_batch": f"write {TRAINING}",
    "evaluate": "call the model in evaluation mode, as in nb.cross_entropy(model.eval()(x), y)",
    "predict": "call the model in evaluation mode, as in model.eval()(x)",
    "summary": "use nb.summary(model, x)",
    "tabulate": "use nb.summary(model, x)",
    "cuda": "use model.to(jax.devices()[0]); JAX takes an accelerator by itself where there is one",
    "cpu": "use model.to('cpu:0')",
    "half": "use model.to(dtype='float16')",
    "bfloat16": "use model.to(dtype='bfloat16')",
    "float": "use model.to(dtype='float32')",
    "double": "use model.to(dtype='float64'), with jax.config.update('jax_enable_x64', True)",
    "add_module": "assign it: model.name = module",
    "register_module": "assign it: model.name = module",
    "register_parameter": "assign it: model.name = nb.Parameter(array)",
    "get_parameter": "use model.name, or dict(model.named_parameters())[name]",
    "get_submodule": "use dict(model.named_modules())[name]",
    "share_memory": "not needed: JAX computes in threads of its own",
    "trainable_variables": "use list(model.parameters())",
    "trainable_weights": "use list(model.parameters())",
    "weights": "use list(model.tensors()), or model.v",
    "get_weights": "use model.state_dict()",
    "set_weights": "use model.load_state_dict(mapping)",
    "save": "use model.save_weights(path)",
    "init": "variables are made with the model: model.v holds them",
    "init_weights": "variables are made with the model; initializers are given as weight_initializer=",
    "params": "use model.v",
    "replace": "assign, as in model.weight = array",
    "state": "use model.v for the parameters, model.state_dict() for all variables",
    "set_attributes": "model.train() and model.eval() choose the mode; other attributes are assigned",
    "split": "use model.partition(nb.Parameter)",
    "add": "append to a list of modules, or give all to nb.Sequential(first, second)",
    "layers": "use model.named_modules(), or the attributes by their names",
    "count_params": "use sum(p.size for p in model.parameters()), or nb.summary(model)",
    "trainable": "use model.requires_grad_(False) to freeze, and .requires_grad of a parameter to ask",
    "param_groups": "use optimizer.lr, which may be read and set",
}
# The same for variables, which read like arrays of JAX.
OF_ARRAYS: dict[str, str] = {
    "numel": "use .size",
    "data": "use .value, which may be set too",
    "grad": _NO_GRADIENTS_KEPT,
    "backward": f"write {TRAINING}",
    "detach": "use .value; jax.lax.stop_gradient stops gradients",
    "cpu": "use numpy.asarray(variable)",
    "cuda": "use model.to(jax.devices()[0])",
    "numpy": "use numpy.asarray(variable)",
    "unsqueeze": "use jnp.expand_dims(variable, axis)",
    "permute": "use .transpose(...)",
    "contiguous": "not needed: arrays of JAX have no strides",
    "normal_": "give the layer weight_initializer=nb.RandomNormal(0.0, 1.0), or set .value",
    "uniform_": "give the layer weight_initializer=nb.Uniform(...), or set .value",
    "zero_": "give the layer weight_initializer=nb.Zeros(), or set .value",
    "fill_": "write variable[...] = number",
    "copy_": "write variable.value = array",
    "assign": "write variable.value = array",
    "get_value": "use .value",
    "set_value": "write variable.value = array",
}


def no_such_attribute(name: str, table: Mapping[str, str] = ATTRIBUTES) -> str:
    """How to end a message about an attribute that a model, an optimizer or a variable has not; empty where nothing is to be said."""
    return f": {table[name]}." if name in table else ""
