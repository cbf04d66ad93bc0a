"""The words of neighboring frameworks for arguments, in one place: what they mean here, and what to say where they mean nothing.

PyTorch, Flax, Equinox, Keras and Haiku have other words for some of what is here. Where the meaning is the same, the word is taken
as an argument of a constructor or a function (`SAME`); the name here stays the one that `repr` and the documentation use. Where it is not the
same or has no place here, the message knows the word and says what to do (`ARGUMENTS`). Their names and attributes are in `neighbors`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentError, ArgumentTypeError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# The name of an argument here, and the neighbors' names for the same. A word counts only where a constructor or function has
# that argument and has none of the word's own name; of several the first counts.
SAME: dict[str, str] = {
    "with_bias": "bias use_bias",
    "rate": "p",
    "dropout_rate": "dropout dropout_p",
    "x": "input inputs",
    "in_features": "input_size in_dim input_dim",
    "out_features": "units output_size out_dim",
    "hidden_features": "hidden_size dim_feedforward units",
    "features": "embed_dim d_model in_features",
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
    "num_channels": "num_features",
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
    # of initializers
    "fan_mode": "mode",
    "negative_slope": "a nonlinearity",
    # of methods of modules
    "recursive": "recurse",
    "keep_var": "keep_vars",
    "device_or_sharding": "device",
    "mapping": "state_dict",
    "fn": "hook",
    # of variables
    "value": "data",
    "requires_grad": "trainable",
    # of functions that read
    "size": "batch_size",
    "device": "map_location",
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
    "weights_only": (True,),
    "num_workers": (0,),
    "pin_memory": (True, False),
    "name": (None,),
    "trainable": (True,),
    "activation": (None, "linear"),
    "kernel_regularizer": (None,),
    "bias_regularizer": (None,),
    "activity_regularizer": (None,),
    "kernel_constraint": (None,),
    "noise_shape": (None,),
    "mask_zero": (False,),
    "recurrent_dropout": (0,),
    "return_state": (True,),
    "decode": (False,),
    "remove_duplicate": (True,),
    "persistent": (True,),
    "non_blocking": (True, False),
    "assign": (False,),
    "always_call": (False,),
}
# Values with another spelling, by the argument here.
VALUES: dict[str, dict[str, Any]] = {
    "approximate": {"tanh": True, "none": False},
    "negative_slope": {"relu": 0.0, "leaky_relu": 0.0},  # as PyTorch's initializers have it, whose `a` is 0
}
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
    # of variables
    "value": ("requires_grad",),
}
_PENALTY = (
    "Add the penalty to the loss, as in loss + 1e-4 * nb.global_norm(model.v) ** 2, or give the optimizer weight_decay="
)
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
    "train": "model.train() and model.eval() choose the mode",
    "is_training": "model.train() and model.eval() choose the mode",
    "inference": "model.train() and model.eval() choose the mode",
    "mutable": "What a call changes (running statistics) is written into the model; model(x, v=v) reads other parameters",
    "need_weights": "return_weights=True gives the weights beside the values; without it the values come alone",
    "return_attention_scores": "return_weights=True gives the weights beside the values; without it the values come alone",
    "key_padding_mask": "mask= is True where a position is read, of shape (batch, 1, 1, keys) for padded keys",
    "attention_mask": "mask= is True where a position is read",
    "key_dim": "features= is the size of all heads together: num_heads times key_dim",
    "qkv_features": "The projections are as wide as features= says",
    "decode": "Write keys and values of earlier steps into nb.Buffer in a forward of your own",
    "trainable": "Freeze it when it is made: layer.requires_grad_(False)",
    "kernel_regularizer": _PENALTY,
    "bias_regularizer": _PENALTY,
    "activity_regularizer": _PENALTY,
    "kernel_constraint": "Set the weights after the step, as in layer.weight = jnp.clip(layer.weight, 0)",
    "weight_decay": "nb.AdamW takes weight_decay=; nb.Optax(optax.chain(optax.add_decayed_weights(1e-4), ...)) adds it to the gradient of any rule",
    "decay": "lr= may be a schedule, such as nb.cosine_schedule(1e-3, 1000), or a function of the step",
    "global_clipnorm": "Clip before the step: grads = nb.clip_by_global_norm(grads, 1.0)",
    "clipvalue": "Clip before the step: grads = grads.clip(-1.0, 1.0)",
    "mask_zero": "Give the layer that reads the values a mask, as in mask=indices != 0",
    "input_length": "Any length will do: leave it out",
    "input_size": "Shapes are those of the arrays that are given, or of jax.ShapeDtypeStruct((1, 28, 28), 'float32')",
    "noise_shape": "nb.Dropout2d drops whole channels",
    "recurrent_dropout": "Put nb.Dropout between recurrent layers",
    "return_state": "A recurrent layer gives its outputs and its last state, always",
    "num_workers": "Give a DataLoader of PyTorch with workers of its own, or prefetch= to have batches on the device ahead of their turn",
    "weights_only": "Files are data here, and nothing of them is executed: leave it out",
    "deterministic": "model.eval() turns dropout off, model.train() turns it on",
    "return_indices": "nb.max_pool2d gives values alone",
    "remove_duplicate": "Each one is given once; model.state_dict() has shared variables under all their names",
    "persistent": "A buffer is always in the state: what shall stay out of it is computed in the forward",
    "always_call": "What is to happen also where the forward raises stands in try and finally, in the forward or around the call",
    "assign": "Variables take the values and keep their dtype: model.to(dtype=...) changes that",
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
# Of two words for one argument: what another framework means by the second.
DOUBLED: dict[str, str] = {
    "dtype": "dtype= is that of the variables here; to compute in another one, cast both: model(x.astype(d), v=model.v.astype(d))",
}
# Arguments that have to be given here and are not given elsewhere, and where they come from.
NEEDED: dict[str, str] = {
    "key": "Give key=jax.random.key(0), or let the layer draw one, as nb.Dropout(0.5) does in training",
}


def teach(kind: type[T]) -> type[T]:
    """Let the constructor of a class take the neighbors' words; called when a class of the library is made."""
    made = vars(kind).get("__init__")
    if not inspect.isfunction(made) or not is_ours(kind):
        return kind

    @functools.wraps(made)
    def __init__(self: Any, *args: object, **kwargs: object) -> None:
        __tracebackhide__ = True
        known = arguments(type(self) if type(self).__init__ is __init__ else kind)
        if (kwargs and (kwargs.keys() - known.named or kwargs.keys() & known.watched(len(args)))) or len(
            args
        ) > known.count:
            args, kwargs = translated(type(self).__name__, known, args, kwargs)
        try:
            made(self, *args, **kwargs)
        except TypeError:
            missing = _missing(made, self, *args, **kwargs)
            if not missing:
                raise
            raise _unbound(type(self), missing) from None  # Python could not bind them: nothing of `made` has run

    type.__setattr__(kind, "__init__", __init__)
    return kind


def _missing(made: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """The arguments that a constructor needs and was not given."""
    signature = inspect.signature(made)
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return []
    needed = [
        each
        for each in signature.parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    return [each.name for each in needed if each.name not in given]


def _unbound(kind: type, missing: list[str]) -> ArgumentTypeError:
    """That arguments are missing, with the class of ours that was meant and what it takes."""
    kind = next(each for each in kind.__mro__ if is_ours(each) and not each.__name__.startswith("_"))
    taken = ", ".join(arguments(kind).positional)
    first = (
        "The size of the input is the first argument. "
        if missing[-1].endswith(("features", "size", "channels"))
        else ""
    )
    return ArgumentTypeError(
        f"{kind.__name__} needs {' and '.join(missing)}, as in {kind.__name__}({taken}). {first}Nothing was made."
    )


def takes_words(fn: Callable[P, R]) -> Callable[P, R]:
    """Let a function of ours that takes no others take the neighbors' words for its arguments, or be told what to do instead.

    Also one of the methods of `Module`.
    """
    known = None
    where = f"Module.{fn.__name__}" if "." in fn.__qualname__ else f"nb.{fn.__name__}"

    @functools.wraps(fn)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        nonlocal known
        known = known or Arguments(fn)
        if kwargs.keys() <= known.named:
            return fn(*args, **kwargs)
        args, kwargs = translated(where, known, args, kwargs)  # type: ignore[assignment]
        return fn(*args, **kwargs)

    return told


def _takes_any(fn: Callable[..., Any]) -> bool:
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
            cure = f" {DOUBLED[name]}." if name in DOUBLED else ""
            raise ArgumentError(
                f"{where}: {given[name]}= and {word}= mean the same, and both were given. {known.undone} Leave one out.{cure}"
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


def _meaning(where: str, known: Arguments, word: str, value: object) -> str | None:
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


def _is_same(value: object, known: object) -> bool:
    """Whether two plain values are the same; the number 1 is not the flag True."""
    return value is known or (isinstance(value, bool) == isinstance(known, bool) and value == known)


def _without_pairs(named: dict[str, Any], known: Arguments) -> dict[str, Any]:
    """`betas=(0.9, 0.999)` as two numbers."""
    if "betas" in named and "betas" not in known.named:
        first, second = named.pop("betas")
        named = {"beta1": first, "beta2": second, **named}
    return named
