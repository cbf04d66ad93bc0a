"""What to say where a name, an attribute or a method of a neighboring framework is looked for: the word is known, and its cure.

What they call arguments is in `dialects`.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from nbmodule.base.paths import hint

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
    "Bidirectional": "give the layer bidirectional=True, as in nb.LSTM(3, 4, bidirectional=True)",
    "TimeDistributed": "not needed: layers take any number of leading axes",
    "RepeatVector": "use jnp.repeat(x[:, None], n, axis=1)",
    "Permute": "use x.transpose(...)",
    "Masking": "give the layer that reads the values a mask, as in nb.MultiHeadAttention",
    "Attention": "use nb.MultiHeadAttention(features, num_heads), or the function nb.scaled_dot_product_attention",
    "GaussianNoise": "add nb.RandomStream(0).normal(x.shape) in forward, or jax.random.normal(key, x.shape)",
    "Rescaling": "multiply, as in x / 255",
    "Normalization": "subtract the mean and divide by the deviation, kept in nb.Buffer",
    "Discretization": "use jnp.digitize",
    "TextVectorization": "a tokenizer of another package turns text into numbers for nb.Embedding",
    "AveragePooling1D": "use nb.AvgPool1d(kernel_size)",
    "GlobalMaxPooling1D": "use x.max(axis=1)",
    "UpSampling2D": "use nb.Upsample(scale_factor=2)",
    "SpatialDropout2D": "use nb.Dropout2d(rate)",
    "SeparableConv2D": "use nb.Sequential(nb.DepthwiseConv2d(channels, 3), nb.Conv2d(channels, out_channels, 1))",
    "PixelShuffle": "use x.reshape and x.transpose in forward; einops.rearrange says it in a line",
    "EmbeddingBag": "use nb.Embedding(num_embeddings, embedding_dim)(indices).mean(axis=-2)",
    "OptimizedLSTMCell": "use nb.LSTMCell(in_features, hidden_features), which is one product already",
    "LinearGeneral": "use nb.Linear on a reshaped input, or nb.Parameter and jnp.einsum in forward",
    "DenseGeneral": "use nb.Linear on a reshaped input, or nb.Parameter and jnp.einsum in forward",
    "LoRA": 'the recipe "LoRA" of the documentation builds it from nb.Linear and nb.Parameter',
    "DataParallel": "use nb.shard with a mesh, then nb.jit",
    "DistributedDataParallel": "use nb.shard with a mesh, then nb.jit",
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
    "MeanSquaredError": "use the function nb.mse_loss(prediction, target)",
    "MeanAbsoluteError": "use the function nb.mae_loss(prediction, target)",
    "BinaryCrossentropy": "use the function nb.binary_cross_entropy(prediction, target, from_logits=True)",
    "CosineEmbeddingLoss": "use nb.cosine_similarity",
    "TripletMarginLoss": "write it with jnp.linalg.norm and jnp.maximum",
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
    "update": "use optimizer.update(model, grads) for a step, nb.update_state(model, state) for a state",
    "pop": "returns are kept by nb.track(model), named values by nb.tap(x, name)",
    "Intermediate": "returns are kept by nb.track(model), named values by nb.tap(x, name)",
    "iter_graph": "use model.named_modules() and model.named_parameters()",
    "view": "call model.eval() or model.train()",
    "to_pure_dict": "use model.state_dict(), or model.v.cont_to_dict()",
    "to_flat_state": "use model.state_dict()",
    "split_rngs": "not needed: nb.vmap gives each row numbers of its own, nb.stack each member values of its own",
    "Carry": "nb.scan(f, carry, xs) has the carry first, as jax.lax.scan has it",
    "StateAxes": "not needed: nb.vmap and nb.scan take modules as they are",
    "with_partitioning": "use nb.shard(model, mesh, rules)",
    "get_partition_spec": "use nb.shard(model, mesh, rules)",
    "get_named_sharding": "use nb.shard(model, mesh, rules)",
    "make_causal_mask": "give is_causal=True, or jnp.tril(jnp.ones((length, length), bool))",
    "TrainState": "not needed: the model and the optimizer hold their state; nb.save_checkpoint keeps both",
    "train_state": "not needed: the model and the optimizer hold their state; nb.save_checkpoint keeps both",
    "bridge": "use nb.from_flax(model) and model.to_flax()",
    "fori_loop": "use nb.scan, or jax.lax.fori_loop where no module is changed",
    "functional_call": "use model(x, v=v)",
    "func": "use model(x, v=v), nb.grad and nb.vmap",
    "hessian": "use jax.hessian of a function of v, as in lambda v: loss(model(x, v=v))",
    "pmap": "use nb.shard with a mesh, then nb.jit",
    "transform": "not needed: nb.Module holds its variables; model(x, v=v) is the pure form",
    "transform_with_state": "not needed: nb.Module holds its variables; nb.export_state gives them",
    "without_apply_rng": "not needed: nb.Module holds its variables; model(x, v=v) is the pure form",
    "get_parameter": "use nb.Parameter(array) as an attribute of the module",
    "next_rng_key": "use nb.RandomStream(0) as an attribute of the module, and its draw()",
    "compact": "not needed: layers are made in __init__, or in _build with build_mode='on_call'",
    # data and training
    "tensor": "use jnp.asarray",
    "as_tensor": "use jnp.asarray",
    "numpy": "use jax.numpy",
    "rand": "use jax.random.uniform(key, shape), with key = jax.random.key(0)",
    "randn": "use jax.random.normal(key, shape), with key = jax.random.key(0)",
    "randperm": "use jax.random.permutation(key, n), with key = jax.random.key(0)",
    "rand_like": "use jax.random.uniform(key, x.shape), with key = jax.random.key(0)",
    "randn_like": "use jax.random.normal(key, x.shape), with key = jax.random.key(0)",
    "cat": "use jnp.concatenate(arrays, axis=0)",
    "mm": "use a @ b",
    "bmm": "use a @ b",
    "clamp": "use jnp.clip(x, low, high)",
    "unsqueeze": "use jnp.expand_dims(x, axis=0)",
    "permute": "use jnp.transpose(x, axes)",
    "masked_fill": "use jnp.where(mask, value, x)",
    "numel": "use x.size",
    "from_dlpack": "use jnp.from_dlpack",
    "long": "dtypes are those of JAX, such as jnp.int32",
    "int": "dtypes are those of JAX, such as jnp.int32",
    "half": "dtypes are those of JAX, such as jnp.float16",
    "float": "dtypes are those of JAX, such as jnp.float32",
    "double": "dtypes are those of JAX: jnp.float64, with jax.config.update('jax_enable_x64', True)",
    "set_default_dtype": "give dtype= to layers, or model.to(dtype='bfloat16'); jax.config.update('jax_enable_x64', True) allows float64",
    "autocast": "compute on a copy in half precision, as in model(x, v=model.v.astype(jnp.bfloat16))",
    "amp": "compute on a copy in half precision, as in model(x, v=model.v.astype(jnp.bfloat16))",
    "mixed_precision": "compute on a copy in half precision, as in model(x, v=model.v.astype(jnp.bfloat16))",
    "Dataset": "any class with __len__ and __getitem__ goes into nb.batches(dataset, 64)",
    "to_categorical": "use jax.nn.one_hot, or leave the class numbers: nb.cross_entropy takes them",
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
    "utils": "its parts are on the front door: nb.batches for loaders, nb.clip_by_global_norm for gradients, nb.WeightNorm and "
    "nb.SpectralNorm around a layer, nb.seed for seeds, nb.graph for pictures of a model; jax.nn.one_hot makes classes into vectors",
    "models": "models are nb.Sequential or classes over nb.Module; model.save_weights and model.load_weights keep them in files",
    "saving": "use model.save_weights(path), and model.load_weights(path) of a model of that class",
    "save_model": "use model.save_weights(path), and model.load_weights(path) of a model of that class",
    "load_model": "make the model from its class, then model.load_weights(path)",
    "load_state_dict": "use model.load_state_dict(mapping), or model.load_weights(path)",
    "activations": "activations are functions and layers on the front door, as nb.relu and nb.ReLU()",
    "regularizers": "add the penalty to the loss, as in loss + 1e-4 * nb.global_norm(model.v) ** 2, or give the optimizer weight_decay=",
    "constraints": "set the weights after the step, as in model.weight = jnp.clip(model.weight, 0)",
    "ops": "operations are those of jax.numpy and of nb.nn.functional",
    "math": "operations are those of jax.numpy",
    "linalg": "use jnp.linalg",
    "random": "nb.seed(0) seeds layers; nb.RandomStream(0) is a stream for a module, and jax.random draws from keys",
    "backend": "the backend is JAX; nothing is kept between models that would have to be cleared",
    "backends": "the backend is JAX, whose settings are those of jax.config",
    "config": "settings are those of jax.config, and dtype= of layers",
    "applications": "no trained models come with it: nb.from_torch, nb.from_keras and nb.from_flax take those of others",
    "hub": "no trained models come with it: nb.from_torch, nb.from_keras and nb.from_flax take those of others",
    "preprocessing": "no data tools come with it: nb.batches takes arrays, a DataLoader of PyTorch, and data sets with len and indices",
    "data": "nb.batches((x, y), 64) makes batches, of a DataLoader of PyTorch too; attributes of modules need no marks",
    "static": "not needed: attributes that hold no arrays are static",
    "training": "write the loop: for x, y in nb.batches((x, y), 64): ...",
    "distributed": "use nb.shard with a mesh, and jax.distributed.initialize() on many hosts",
    "onnx": "use jax.export for a program that runs elsewhere, or model.to_torch() and torch.onnx",
    "xavier_uniform": "use nb.GlorotUniform()",
    "xavier_normal": "use nb.GlorotNormal()",
    "glorot_uniform": "use nb.GlorotUniform()",
    "glorot_normal": "use nb.GlorotNormal()",
    "HeNormal": "use nb.KaimingNormal()",
    "HeUniform": "use nb.KaimingUniform()",
    "he_normal": "use nb.KaimingNormal()",
    "he_uniform": "use nb.KaimingUniform()",
    "lecun_normal": "use nb.LecunNormal()",
    "orthogonal": "use nb.Orthogonal()",
    "zeros": "use nb.Zeros() for first values, jnp.zeros for an array",
    "ones": "use nb.Ones() for first values, jnp.ones for an array",
    "random_normal": "use nb.RandomNormal(0.0, 0.05)",
    "constant": "use nb.Constant(value)",
    "cuda": "JAX takes an accelerator by itself where there is one; jax.devices() lists them",
    "flatten": "use x.reshape(len(x), -1), or the layer nb.Flatten()",
    "callbacks": "write the loop: what a callback does stands in it; nb.Live(model) shows how it goes",
    "datasets": "no data comes with it: nb.batches takes arrays, a DataLoader of PyTorch, and data sets with len and indices",
    "metrics": "compute them in the loop with jax.numpy, and show them by live.log(accuracy=value)",
    "Trainer": "write the loop: for x, y in live.steps(nb.batches((x, y), 64)): ..., with live = nb.Live(model)",
}


_PAD = "use jnp.pad(x, ..., mode=...), of jax.numpy"
NAMES |= {
    "unfold": "use jax.lax.conv_general_dilated_patches",
    "fold": "use x.at[...].add(...), or nb.conv_transpose2d",
    "pixel_shuffle": NAMES["PixelShuffle"],
    "grid_sample": "use jax.scipy.ndimage.map_coordinates",
    "gumbel_softmax": "use nb.softmax((logits + jax.random.gumbel(key, logits.shape)) / temperature)",
    "hardtanh": "use jax.nn.hard_tanh",
    "pairwise_distance": "use jnp.linalg.norm(a - b, axis=-1)",
    "PairwiseDistance": "use jnp.linalg.norm(a - b, axis=-1)",
    "CosineSimilarity": "use the function nb.cosine_similarity(x1, x2)",
    "triplet_margin_loss": NAMES["TripletMarginLoss"],
    "margin_ranking_loss": "write it with jnp.maximum",
    "adaptive_max_pool2d": NAMES["AdaptiveMaxPool2d"],
    "embedding_bag": "use nb.embedding(indices, weight).sum(axis=-2)",
    "ReduceLROnPlateau": "set the rate in the loop, as in optimizer.lr = optimizer.lr * 0.5",
    "swa_utils": "average in the loop, as in average.v = average.v * 0.99 + model.v * 0.01",
    "EMA": "average in the loop, as in average.v = average.v * 0.99 + model.v * 0.01",
    "apply_if_finite": "use nb.Optax(optax.apply_if_finite(transformation, 5))",
    "mean_squared_error": "use nb.mse_loss(prediction, target)",
    "mean_absolute_error": "use nb.mae_loss(prediction, target)",
    "sparse_categorical_crossentropy": "use nb.cross_entropy(prediction, target) on logits",
    "categorical_crossentropy": "use nb.cross_entropy(prediction, target) on logits",
    "MultiMetric": "compute them in the loop with jax.numpy, and show them by live.log(accuracy=value)",
    "Metric": "compute them in the loop with jax.numpy, and show them by live.log(accuracy=value)",
    "field": "fields make no constructor here: set attributes in __init__; what is no array is static by itself",
    "Resizing": "use jax.image.resize, or nb.interpolate",
    "Average": "add in forward, as in (x + y) / 2",
    "Multiply": "multiply in forward, as in x * y",
}
_OF_ONE_KIND: dict[str, str] = {
    r"(Zero|Constant|Reflection|Replication|Circular)Pad\dd|ZeroPadding\dD": _PAD,
    r"\w+LR|CosineAnnealing\w+": "the learning rate may be a schedule: nb.cosine_schedule, nb.step_schedule, or one of optax.schedules, as lr=",
    r"\w+Loss": "losses are functions: use one of nb.nn.functional, or write it with jax.numpy",
    r"filter_\w+": "the transforms of nb, and those of jax, take modules as they are",
    r"State|StateIndex|make_with_state": "use nb.StateEntry, and nb.export_state(model)",
    r"Convolution\dD|SeparableConv\w+": "use nb.Conv1d, nb.Conv2d, nb.Conv3d or nb.DepthwiseConv2d",
    r"Lazy\w+": "give the sizes, or make layers in _build with build_mode='on_call', where x.shape[-1] is known",
    r"Random\w+|RandAugment|AutoContrast|CutMix|MixUp": "change the images before nb.batches, or in the step with jax.random and jax.numpy",
}
"""Names of one kind elsewhere, by pattern, and what stands for them."""

# Where names are that JAX has under the same name, in the order in which they are looked for.
_ROOMS_OF_JAX = {"jax.numpy": "jnp"} | {
    name: name for name in ("jax.nn", "jax", "jax.lax", "jax.random", "jax.nn.initializers")
}


def no_such_name(package: str, name: str, names: Iterable[str]) -> str:
    """What to tell a user who has asked a package for a name that it has not.

    Example:
        >>> no_such_name("nbmodule", "linspace", [])
        'nb has no linspace: use jnp.linspace, of jax.numpy.'
    """
    short = package.replace("nbmodule", "nb", 1)
    known = NAMES.get(name) or NAMES.get(name.removesuffix("_"))
    if known:
        return f"{short} has no {name}: {known}."
    cures = [cure for pattern, cure in _OF_ONE_KIND.items() if re.fullmatch(pattern, name)]
    known = None if name.startswith("_") else _in_jax(name)
    if known is not None or cures:
        return f"{short} has no {name}: {cures[0] if cures else f'use {known}'}."
    spelled = {each.lower() for each in names}
    if (
        not name.startswith("_")
        and name.lower() not in spelled
        and callable(getattr(importlib.import_module("optax"), name, None))
    ):
        return f"{short} has no {name}: use optax.{name}; a transformation of optax goes into nb.Optax(transformation)."
    return f"{short} has no name {name!r}{hint(name, names)}"


def _in_jax(name: str) -> str | None:
    """A function or dtype of JAX that has that very name."""
    for room, short in _ROOMS_OF_JAX.items():
        if callable(getattr(importlib.import_module(room), name, None)):
            return f"jnp.{name}, of jax.numpy" if short == "jnp" else f"{short}.{name}"
    return None


# -- attributes --------------------------------------------------------------------------------------
TRAINING = "loss, grads = nb.value_and_grad(loss_function)(model), then optimizer.update(model, grads)"
_NO_GRADIENTS_KEPT = "not needed: gradients are returned by nb.grad, and none are kept"
# Methods that a neighbor's models and optimizers have, and what stands for them here.
ATTRIBUTES: dict[str, str] = {
    "zero_grad": _NO_GRADIENTS_KEPT,
    "iterations": "count the steps in the loop; optimizer.state_dict() holds the optimizer's own count",
    "apply": f"write {TRAINING}",
    "name": "a module is named by the attribute that holds it, as in named_modules()",
    "get_config": "keep the arguments of the constructor; what is trained is in state_dict()",
    "to_json": "keep the class and its arguments; model.save_weights(path) keeps what is trained",
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
    "learning_rate": "use optimizer.lr, which may be read and set",
    "kernel": "use .weight, which is (out, in) for nb.Linear",
    "embedding": "use .weight",
    "gamma": "use .weight",
    "beta": "use .bias",
    "moving_mean": "use .running_mean",
    "moving_variance": "use .running_var",
    "units": "use .out_features",
    "variables": "use model.named_tensors(), or model.v",
    "bind": "not needed: a module holds its variables; model(x, v=v) uses others for one call",
    "sow": "use nb.tap(x, name), and nb.track(model) to read it",
    "perturb": "use nb.tap(x, name); nb.track(model, gradients=True) gives its gradient",
    "add_weight": "write nb.Parameter(array), as in self.w = nb.Parameter(jnp.zeros((3, 2))); where the shape comes from the first input, "
    "in _build with build_mode='on_call'",
    "add_loss": "return it from forward beside the output, and add it up in the loss",
    "get_layer": "use model.name, or dict(model.named_modules())[name]",
    "num_parameters": "use sum(p.size for p in model.parameters()), or nb.summary(model)",
    "non_trainable_weights": "use [p for p in model.parameters() if not p.requires_grad], and list(model.buffers())",
    "non_trainable_variables": "use [p for p in model.parameters() if not p.requires_grad], and list(model.buffers())",
    "input_shape": "shapes are not kept: nb.summary(model, x) tells them",
    "output_shape": "shapes are not kept: nb.summary(model, x) tells them",
    "built": "use model.built_",
    "reset_states": "states are returned by a recurrent layer and given to its next call",
    "gradient_checkpointing_enable": "use nb.checkpoint around the call of a block",
    "metrics": "compute them in the loop with jax.numpy, and show them by live.log(accuracy=value)",
    "register_full_backward_hook": "nb.track(model, gradients=True) gives the gradient by each return; jax.custom_vjp changes one",
    "register_full_backward_pre_hook": "nb.track(model, gradients=True) gives the gradient by each return; jax.custom_vjp changes one",
    "register_backward_hook": "nb.track(model, gradients=True) gives the gradient by each return; jax.custom_vjp changes one",
    "register_state_dict_post_hook": "change what model.state_dict() gives, which is a plain dict",
    "register_state_dict_pre_hook": "change what model.state_dict() gives, which is a plain dict",
    "register_load_state_dict_pre_hook": "change the mapping before model.load_state_dict(mapping), or give a function of (name, tensor)",
    "register_load_state_dict_post_hook": "write what is to follow after model.load_state_dict(mapping)",
    "get_extra_state": "extra= of nb.save_checkpoint keeps what is no variable",
    "set_extra_state": "extra= of nb.save_checkpoint keeps what is no variable",
    "get_buffer": "use model.name, or dict(model.named_buffers())[name]",
    "set_submodule": "assign it: model.name = module",
    "to_empty": "nb.eval_shape(make) makes a model of shapes alone; model.load_weights(path) fills it",
    "type": "use model.to(dtype='float16')",
    "iter_modules": "use model.named_modules()",
    "iter_children": "use model.named_children()",
    "add_param_group": "give groups= when it is made, as in nb.Adam(1e-3, groups={'head.*': {'lr': 1e-4}})",
    "register_step_pre_hook": "write it before optimizer.update(model, grads)",
    "register_step_post_hook": "write it after optimizer.update(model, grads)",
    "train_step": "write the step: " + TRAINING,
    "losses": "return them from forward beside the output, and add them up in the loss",
    "optimizer": "the optimizer stands beside the model: optimizer = nb.Adam(1e-3), then optimizer.update(model, grads)",
}
# The same for variables, and for arrays of JAX in a forward: methods that tensors of PyTorch have.
OF_ARRAYS: dict[str, str] = {
    "numel": "use .size",
    "data": "use .value, which may be set too",
    "grad": _NO_GRADIENTS_KEPT,
    "backward": f"write {TRAINING}",
    "detach": "use .value; jax.lax.stop_gradient stops gradients",
    "cpu": "use numpy.asarray(x)",
    "cuda": "use model.to(jax.devices()[0])",
    "numpy": "use numpy.asarray(x)",
    "norm": "use jnp.linalg.norm(x)",
    "abs": "use jnp.abs(x)",
    "exp": "use jnp.exp(x)",
    "log": "use jnp.log(x)",
    "sqrt": "use jnp.sqrt(x)",
    "relu": "use nb.relu(x)",
    "sigmoid": "use nb.sigmoid(x)",
    "tanh": "use jnp.tanh(x)",
    "softmax": "use nb.softmax(x, axis=-1)",
    "log_softmax": "use nb.log_softmax(x, axis=-1)",
    "matmul": "use a @ b",
    "mm": "use a @ b",
    "bmm": "use a @ b",
    "t": "use x.T",
    "dim": "use x.ndim",
    "to": "use x.astype(dtype), or jax.device_put(x, device)",
    "type": "use x.astype(dtype)",
    "float": "use x.astype('float32')",
    "double": "use x.astype('float64')",
    "half": "use x.astype('float16')",
    "bfloat16": "use x.astype('bfloat16')",
    "long": "use x.astype('int32')",
    "int": "use x.astype('int32')",
    "bool": "use x.astype('bool')",
    "chunk": "use jnp.split(x, parts, axis)",
    "split": "use jnp.split(x, parts, axis)",
    "expand": "use jnp.broadcast_to(x, shape)",
    "expand_as": "use jnp.broadcast_to(x, other.shape)",
    "view_as": "use x.reshape(other.shape)",
    "masked_fill": "use jnp.where(mask, value, x)",
    "clamp": "use x.clip(low, high)",
    "topk": "use jax.lax.top_k(x, k)",
    "gather": "use jnp.take_along_axis(x, indices, axis)",
    "scatter": "use x.at[indices].set(values)",
    "add_": "arrays are not changed in place: write x = x + other",
    "mul_": "arrays are not changed in place: write x = x * other",
    "clone": "not needed: an array never changes; jnp.array(x) copies",
    "requires_grad_": "not needed: nb.grad says by what to differentiate",
    "new_zeros": "use jnp.zeros(shape, x.dtype)",
    "get_shape": "use x.shape",
    "unsqueeze": "use jnp.expand_dims(x, axis)",
    "permute": "use x.transpose(...)",
    "contiguous": "not needed: arrays of JAX have no strides",
    "normal_": "give the layer weight_initializer=nb.RandomNormal(0.0, 1.0), or set .value",
    "uniform_": "give the layer weight_initializer=nb.Uniform(...), or set .value",
    "zero_": "give the layer weight_initializer=nb.Zeros(), or set .value",
    "fill_": "write variable[...] = number",
    "copy_": "write variable.value = array",
    "assign": "write variable.value = array",
    "assign_add": "write variable.value = variable + array",
    "assign_sub": "write variable.value = variable - array",
    "raw_value": "use .value",
    "copy_from": "write variable.value = other",
    "clamp_": "arrays are not changed in place: write x = x.clip(low, high)",
    "detach_": "use .value; jax.lax.stop_gradient stops gradients",
    "index_add_": "use x.at[indices].add(values)",
    "index_select": "use jnp.take(x, indices, axis)",
    "masked_fill_": "arrays are not changed in place: write x = jnp.where(mask, value, x)",
    "masked_select": "use x[mask], outside of compiled functions",
    "scatter_": "use x.at[indices].set(values)",
    "scatter_add_": "use x.at[indices].add(values)",
    "register_hook": "nb.track(model, gradients=True) gives gradients; jax.custom_vjp changes one",
    "narrow": "use a slice, as in x[:, 2:5]",
    "unbind": "use list(x)",
    "erf": "use jax.scipy.special.erf(x)",
    "div": "use a / b",
    "sub": "use a - b",
    "get_value": "use .value",
    "set_value": "write variable.value = array",
}


def no_such_attribute(name: str, table: Mapping[str, str] = ATTRIBUTES) -> str:
    """How to end a message about an attribute that a model, an optimizer or a variable has not; empty where nothing is to be said."""
    known = _of_arrays(name) if table is OF_ARRAYS else table.get(name)
    return f": {known}." if known else ""


def _of_arrays(name: str) -> str | None:
    """What stands for a method of tensors: that which the table knows, or the function of jax.numpy of that name.

    Example:
        >>> _of_arrays("tanh_")
        'arrays are not changed in place: write x = jnp.tanh(x)'
    """
    if name in OF_ARRAYS:
        return OF_ARRAYS[name]
    plain = name.removesuffix("_")
    if name.startswith("_") or not callable(getattr(importlib.import_module("jax.numpy"), plain, None)):
        return None
    return f"use jnp.{name}(x)" if plain == name else f"arrays are not changed in place: write x = jnp.{plain}(x)"


_NOT_CALLED = {
    "setup": "setup is not called here: make layers in __init__",
    "build": "a build of one's own is not called: name it _build, and make the module with build_mode='on_call'",
}


def unrun(kind: type) -> str:
    """Of a class that lacks an attribute: which method should have made it, that another framework would have called."""
    own = [name for name in _NOT_CALLED if _is_of_user(getattr(kind, name, None))]
    return f" In {kind.__name__}, {_NOT_CALLED[own[0]]}." if own else ""


def fields_told(kind: type, given: Iterable[str]) -> str:
    """Of a class that does not take what it was given: whether these are its fields, which make a constructor elsewhere."""
    fields = getattr(kind, "__annotations__", {})
    if not any(name in fields for name in given):
        return ""
    return " Fields make no constructor here: write __init__, or put @dataclasses.dataclass above the class."


def _is_of_user(method: Any) -> bool:
    return inspect.isfunction(method) and str(method.__module__).partition(".")[0] != __name__.partition(".")[0]


# -- mistakes in a forward ---------------------------------------------------------------------------
_NO_ATTRIBUTE = re.compile(r"has no attribute '?(\w+)'?$")
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")
_OF_JAX = re.compile(r"ArrayImpl|Tracer")
_WORDS_OF_NUMPY = {"dim": "axis", "keepdim": "keepdims"}


def cure_of(error: BaseException, unneeded: Mapping[str, str]) -> str | None:
    """What to do about an error that comes from treating an array of JAX as another framework's tensor; None for any other error.

    Args:
        error: As it leaves a forward.
        unneeded: Arguments that have no place here, with the cure.

    Example:
        >>> cure_of(TypeError("_sum() got an unexpected keyword argument 'dim'"), {})
        'dim= is axis= for arrays of JAX.'
    """
    text = str(error)
    if isinstance(error, AttributeError) and _OF_JAX.search(text) and (found := _NO_ATTRIBUTE.search(text)):
        cure = _of_arrays(found[1])
        return cure and f"Arrays of JAX have no .{found[1]}: {cure}."
    if isinstance(error, (NotImplementedError, TypeError)) and _is_of_view(error):
        return "Arrays of JAX are given another shape by x.reshape(...)."
    if type(error) is ValueError and "values to unpack" in text and re.search("att", _line_of(error), re.IGNORECASE):
        return "nb.MultiHeadAttention gives its values alone; with return_weights=True it gives the weights too."
    if type(error) is not TypeError:
        return None
    if "invalid PRNG key data" in text:
        return (
            "Functions of jax.random take the key itself, no variable that holds it: jax.random.split(self.key.value)."
        )
    if found := _UNEXPECTED.search(text):
        if found[1] in _WORDS_OF_NUMPY:
            return f"{found[1]}= is {_WORDS_OF_NUMPY[found[1]]}= for arrays of JAX."
        return f"{found[1]}= is not needed here. {unneeded[found[1]]}." if found[1] in unneeded else None
    if "Tensor" in text and _OF_JAX.search(text):
        return "Functions of PyTorch take no arrays of JAX: use those of nb.nn.functional and of jax.numpy."
    if "'int' object is not callable" in text and ".size(" in _line_of(error):
        return "x.size is the number of elements here: use x.shape[0] for the length of an axis."
    return None


def _is_of_view(error: BaseException) -> bool:
    """Whether an array's `view` raised, which gives another dtype and no other shape."""
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    return "_view" in names[-3:]


def _line_of(error: BaseException) -> str:
    """The line of code that raised."""
    *_, (frame, number) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
    return "" if frame is None else linecache.getline(frame.f_code.co_filename, number)
