"""Laws for the arguments of all layers: `repr` of a layer makes it again, whatever option is
not as usual, and sizes, flags and rates that make no sense are refused by name.
"""

import inspect

import numpy as np
import pytest

import nbmodule as nb

SIZES = {
    (2,): "AdaptiveAvgPool AvgPool MaxPool",
    (2, 3, 4): "Bilinear",
    (2, 4): "GroupNorm",
    (3,): "LocalResponseNorm",
    (3, 2): "Linear",
    (3, 4): "GRU LSTM RNN",
    (
        4,
    ): "BatchNorm InstanceNorm LayerNorm RMSNorm SinusoidalPositionalEncoding TimeEmbedding Upsample",
    (4, 3): "DepthwiseConv",
    (4, 6, 3): "ConvTranspose Conv",
    (5, 4): "Embedding LearnedPositionalEncoding",
    (8, 2): "MultiHeadAttention",
}
POSITIONAL = {name: sizes for sizes, names in SIZES.items() for name in names.split()}
OTHER = {
    ("align_corners"): True, ("alpha"): 1 / 3, ("approximate"): True, ("axis"): 0, ("axis_name"): ("rows"), ("base"): 100.5, ("beta"): 0.6,
    ("bidirectional"): True, ("ceil_mode"): True, ("count_include_pad"): False, ("depth_multiplier"): 2, ("dilation"): 2,
    ("divisor_override"): 3.0, ("dropout_rate"): 0.25, ("end_axis"): 1, ("eps"): 1 / 3, ("groups"): 2, ("head_features"): 4,
    ("k"): 2.5, ("key_features"): 6, ("max_norm"): 2.0, ("mode"): ("bilinear"), ("momentum"): 1 / 3, ("n"): 8, ("negative_slope"): 1 / 3,
    ("new_std"): 2.0, ("nonlinearity"): ("relu"), ("norm"): ("ortho"), ("norm_type"): 1.0, ("num_iterations"): 2, ("num_kv_heads"): 1,
    ("num_layers"): 3, ("num_parameters"): 4, ("output_padding"): 1, ("padding"): 1, ("padding_idx"): 1, ("rate"): 1 / 3,
    ("return_sequence"): False, ("return_state"): False, ("rotary"): True, ("rotary_base"): 100.0, ("start_axis"): 0, ("stride"): 3,
    "track_running_stats": False, "type": 3, "value_features": 6, "with_bias": False,
}  # fmt: skip
TOGETHER = {
    "output_padding": {"stride": 2},
    "dropout_rate": {"num_layers": 2},
    "align_corners": {"mode": "bilinear"},
    "rotary_base": {"rotary": True},
}
UNSEEN = {"key", "device", "dtype", "v", "weight_initializer", "bias_initializer"}
# their parts are lines of their own
WITH_PARTS = "Transformer", "Sequential", "Residual", "SpectralNorm", "WeightNorm"


def positional(name):
    fitting = [start for start in POSITIONAL if name.startswith(start)]
    return POSITIONAL[max(fitting, key=len)] if fitting else ()


def parameters_of(kind):
    """The options of a layer."""
    return {
        name: p
        for name, p in inspect.signature(kind).parameters.items()
        if p.kind is p.KEYWORD_ONLY or p.default is not p.empty
    }


def cases():
    for name in sorted(nb.__all__):
        kind = getattr(nb, name)
        if (
            not isinstance(kind, type)
            or not issubclass(kind, nb.Module)
            or name in ("Module", "Lambda", "Identity")
        ):
            continue
        if name.startswith(WITH_PARTS):
            continue
        yield name, {}
        for option, parameter in parameters_of(kind).items():
            if option in UNSEEN or option in ("size", "scale_factor"):
                continue
            together = TOGETHER.get(option, {})
            if option == "affine":
                value = not parameter.default
            elif option == "data_format":
                value = {"1d": "NCW", "3d": "NCDHW"}.get(name[-2:], "NCHW")
            else:
                value = OTHER[option]
            yield (
                name,
                {option: value}
                | {other: v for other, v in together.items() if other in parameters_of(kind)},
            )


def wrong_cases():
    """A layer, its arguments with one that makes no sense, and what the error says of it."""
    for name, options in cases():
        if options:
            continue
        kind, sizes = getattr(nb, name), positional(name)
        names = [
            p.name
            for p in inspect.signature(kind).parameters.values()
            if p.kind is not p.KEYWORD_ONLY
        ]
        for i, size in enumerate(names[: len(sizes)]):
            for wrong, said in ((0, "at least 1, got 0"), (1.5, "an integer, got 1.5")):
                yield name, (*sizes[:i], wrong, *sizes[i + 1 :]), {}, f"{size} must be {said}"
        for option, parameter in parameters_of(kind).items():
            if isinstance(parameter.default, bool):
                yield name, sizes, {option: "no"}, f"{option} must be True or False"
            elif option in ("rate", "dropout_rate", "momentum"):
                yield name, sizes, {option: 2}, f"{option} must be at least 0 and at most 1, got 2"
            elif option == "data_format":
                yield name, sizes, {option: "NHW"}, "data_format must be one of"
            elif option == "stride" and name.startswith("Conv"):
                yield name, sizes, {option: 0}, "stride must be at least 1, got 0"
            elif option == "eps" and name.endswith("Norm"):
                yield name, sizes, {option: -1}, "eps must be at least 0, got -1"


def function_cases():
    return [
        case
        for case in cases()
        if hasattr(getattr(nb, case[0]), "_function")
        and not case[0].startswith(("Dropout", "Embedding", "LayerNorm"))
        and not case[0].endswith("Cell")
    ]


@pytest.mark.parametrize(("name", "options"), function_cases(), ids=lambda case: str(case))
def test_a_layer_hands_its_options_to_its_function(name, options):
    layer, sizes = getattr(nb, name)(*positional(name), **options), positional(name)
    axes = 2 if name == "Upsample" else layer._axes
    x = np.random.default_rng(0).uniform(0.1, 0.9, (4, *(6,) * axes, 4)).astype("f")
    if "C" in options.get("data_format", "")[:2]:
        x = np.moveaxis(x, -1, 1)
    arrays, given = sizes, {k: v for k, v in options.items() if k != "depth_multiplier"}
    if "Conv" in name:
        given.pop("with_bias", None)
        arrays = [layer.weight, layer.bias]
        if name == "DepthwiseConv2d":
            given["groups"] = 4
    wanted = type(layer)._function(x, *arrays, **given)
    np.testing.assert_array_equal(layer(x), wanted)


def facts(layer):
    own = {
        name: value
        for name, value in vars(layer).items()
        if not isinstance(value, (nb.Module, nb.Variable))
    }
    return own, {name: (variable.shape, type(variable)) for name, variable in layer.named_tensors()}


@pytest.mark.parametrize(("name", "options"), list(cases()), ids=lambda case: str(case))
def test_the_text_of_a_layer_makes_it_again(name, options):
    layer = getattr(nb, name)(*positional(name), **options)
    text = f"{name}({layer.extra_repr()})"
    assert repr(layer).startswith(text[:-1])
    again = eval(text, vars(nb).copy())
    assert type(again) is type(layer)
    assert facts(again) == facts(layer)
    assert again.extra_repr() == layer.extra_repr()


@pytest.mark.parametrize(
    ("layer", "brief"),
    [
        (nb.Linear(16, 10), "16 → 10"),
        (nb.Bilinear(3, 4, 2), "3, 4 → 2"),
        (nb.Embedding(10, 4), "10 × 4"),
        (nb.Conv2d(1, 16, 3), "1 → 16, 3×3"),
        (nb.AvgPool2d((2, 3)), "2×3"),
        (nb.AdaptiveAvgPool2d((7, None)), "→ 7×None"),
        (nb.BatchNorm2d(3), "3"),
        (nb.LayerNorm((4, 3)), "4×3"),
        (nb.GroupNorm(2, 8), "8 in 2 groups"),
        (nb.Dropout2d(0.25), "0.25"),
        (nb.LSTM(3, 8), "3 → 8"),
        (nb.LSTM(3, 8, num_layers=2, bidirectional=True), "3 → 2 × 8, 2 layers"),
        (nb.MultiHeadAttention(64, 8), "64, 8 heads"),
        (nb.TransformerEncoderLayer(64, 8), "64, 8 heads"),
        (nb.TransformerEncoder(12, 64, 8), "12 × 64, 8 heads"),
        (nb.Sequential(nb.ReLU()), "1 layer"),
        (nb.GELU(approximate=True), "approximate=True"),
    ],
    ids=repr,
)
def test_displays_show_the_sizes_of_a_layer(layer, brief):
    assert layer.brief() == brief


def test_the_text_names_only_options_that_differ_from_their_defaults():
    assert repr(nb.LayerNorm(4)) == "LayerNorm((4,), eps=1e-05, affine=True)"
    assert (
        repr(nb.LayerNorm(4, bias=False))
        == "LayerNorm((4,), with_bias=False, eps=1e-05, affine=True)"
    )
    assert repr(nb.DepthwiseConv2d(4, 3)) == "DepthwiseConv2d(4, kernel_size=3, with_bias=True)"
    assert repr(nb.MaxPool2d(2, ceil_mode=True)).endswith("stride=2, ceil_mode=True)")
    assert repr(nb.Dropout(np.float64(1 / 3))) == "Dropout(rate=0.3333333333333333)"


@pytest.mark.parametrize(("name", "sizes", "options", "said"), list(wrong_cases()))
def test_an_argument_that_makes_no_sense_is_refused_by_name(name, sizes, options, said):
    with pytest.raises(
        (nb.ArgumentError, nb.ArgumentTypeError), match=f"^{name}: {said}"
    ) as caught:
        getattr(nb, name)(*sizes, **options)
    assert "\n" not in str(caught.value)
