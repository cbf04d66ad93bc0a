"""First lines as hands from other frameworks type them: each works here, or is answered by a
message that names the cure.

The pages of docs/coming_from show these tables; `python tools/make_first_lines.py` writes them.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# For each page: a line, with `nb` in the place of the framework's name, and a part of the answer;
# "" where the line works.
LINES: dict[str, list[tuple[str, str]]] = {
    "torch": [
        ("nn.Linear(3, 2, bias=False)", ""),
        ("nn.Linear(3, 2, False)", ""),
        ("nn.Conv2d(1, 32, 3, 1)", ""),
        ("nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1, bias=False)", ""),
        ("nn.Conv2d(3, 8, 3, padding='same', padding_mode='zeros')", ""),
        ("nn.Conv2d(3, 8, 3, padding=1, padding_mode='reflect')", "jnp.pad"),
        ("nn.ConvTranspose2d(8, 3, 2, 2)", ""),
        ("nn.MaxPool2d(2, 2)", ""),
        ("nn.Dropout(p=0.5)", ""),
        ("nn.Dropout2d(0.25)", ""),
        ("nn.BatchNorm2d(8, eps=1e-3, momentum=0.01)", ""),
        ("nn.LayerNorm(8, elementwise_affine=False)", ""),
        ("nn.ReLU(inplace=True)", ""),
        ("nn.LeakyReLU(0.2, inplace=True)", ""),
        ("nn.Softmax(dim=1)", ""),
        ("nn.Flatten(start_dim=1)", ""),
        ("nn.LSTM(10, 20, 2, batch_first=True, bidirectional=True)", ""),
        ("nn.LSTM(input_size=10, hidden_size=20, num_layers=2)", ""),
        ("nn.GRU(10, 20, batch_first=False)", "swap the first two axes"),
        ("nn.Embedding(10, 3, padding_idx=0)", ""),
        (
            "nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, dropout=0.1, batch_first=True)",
            "",
        ),
        ("nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))", ""),
        ("nn.Parameter(jnp.zeros(3))", ""),
        ("nn.Parameter(jnp.zeros(3), requires_grad=False)", ""),
        ("F.relu(jnp.ones(3))", ""),
        ("F.cross_entropy(jnp.ones((2, 3)), jnp.array([0, 2]))", ""),
        ("F.max_pool2d(jnp.ones((1, 4, 4, 3)), 2)", ""),
        ("F.nll_loss(jnp.ones((2, 3)), jnp.array([0, 2]))", "nb.cross_entropy"),
        ("nn.ModuleList([nn.Linear(2, 2)])", "plain list"),
        ("nn.ModuleDict({})", "plain dict"),
        ("nn.CrossEntropyLoss()", "nb.cross_entropy"),
        ("nn.MSELoss()", "nb.mse_loss"),
        ("nn.BCEWithLogitsLoss()", "from_logits=True"),
        ("nn.MultiheadAttention(8, 2)", "nb.MultiHeadAttention"),
        ("nn.init.xavier_uniform_(model.weight)", "weight_initializer"),
        ("optim.Adam(model.parameters(), lr=1e-3)", r"optimizer\.update\(model, grads\)"),
        ("optim.SGD(model.parameters(), 0.1)", r"optimizer\.update\(model, grads\)"),
        ("optim.Adam(lr=1e-3, betas=(0.9, 0.99), eps=1e-8)", ""),
        ("optim.SGD(lr=0.1, momentum=0.9, nesterov=True)", ""),
        ("optim.lr_scheduler.StepLR(optimizer, 30)", "nb.cosine_schedule"),
        ("optimizer.zero_grad()", "gradients are returned"),
        ("F.log_softmax(jnp.ones((2, 3)), dim=1)", ""),
        ("F.max_pool2d(jnp.ones((1, 4, 4, 3)), 2, 2)", ""),
        ("F.dropout(x, p=0.5)", "Give key="),
        ("nb.flatten(x, 1)", "nb.Flatten"),
        ("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), num_layers=2)", "from numbers"),
        (
            "nb.save('weights.h5', model) or model.load_state_dict(nb.load('weights.h5'))",
            "model.load_weights",
        ),
        ("exec('from nbmodule import ModuleList')", "plain list"),
        ("optimizer.step()", r"optimizer\.update\(model, grads\)"),
        ("loss.item()", ""),
        ("nb.no_grad()", "nothing is recorded"),
        ("nb.manual_seed(0)", r"nb\.seed\(0\)"),
        ("nb.tensor([1.0])", "jnp.asarray"),
        ("nb.save('model.pt', model.state_dict())", ""),
        ("nb.compile(model)", "nb.jit"),
        ("nb.utils.data.DataLoader([])", "nb.batches"),
        ("model.cuda()", "model.to"),
        ("model.train()", ""),
        ("model.eval()", ""),
        ("model.state_dict()", ""),
        ("sum(p.numel() for p in model.parameters())", r"\.size"),
        ("model.half()", "float16"),
        ("nb.device('cuda' if nb.cuda.is_available() else 'cpu')", r"jax\.devices\(\)"),
        ("model.to(__import__('torch').device('cpu'))", ""),
        ("nn.Linear(3, 2, dtype=__import__('torch').float32)", ""),
        ("nb.randn(4, 8)", r"jax\.random\.normal"),
        ("nb.zeros(4, 8)", r"jnp\.zeros"),
        ("nb.arange(3)", r"jnp\.arange"),
        ("nb.float32", r"jnp\.float32"),
        ("nb.cat([x, x], dim=1)", r"jnp\.concatenate"),
        ("nb.stack([x, x])", r"jnp\.stack"),
        ("nb.argmax(x, dim=1)", r"jnp\.argmax"),
        ("nb.as_tensor([1.0])", r"jnp\.asarray"),
        ("nb.autocast('cuda')", r"model\.v\.astype"),
        ("nb.set_default_dtype('float64')", "jax_enable_x64"),
        ("nb.backends.cudnn.deterministic", r"jax\.config"),
        ("nb.func.functional_call(model, {}, (x,))", r"model\(x, v=v\)"),
        ("nb.onnx.export(model, x, 'model.onnx')", r"jax\.export"),
        ("nn.DataParallel(model)", r"nb\.shard"),
        ("nn.PixelShuffle(2)", r"x\.reshape"),
        ("F.pad(x, (1, 1))", r"jnp\.pad"),
        ("F.one_hot(jnp.array([1]), 10)", r"jax\.nn\.one_hot"),
        ("nn.LSTM(3)", r"LSTM\(in_features, hidden_features"),
        ("nn.Conv2d(3, 8)", "Conv2d needs kernel_size"),
        (
            "nn.MultiHeadAttention(8, 2)(jnp.ones((2, 5, 8)), need_weights=True)",
            "return_weights=True",
        ),
        ("model.num_parameters()", r"\.size"),
        ("model.weight.norm()", r"jnp\.linalg\.norm"),
        (
            "model.load_state_dict(nb.load('nothing.pt', map_location='cpu'))",
            "there is no such file",
        ),
        (
            "nb.batches(__import__('torch').utils.data.DataLoader([1.0, 2.0]), num_workers=2)",
            "prefetch=",
        ),
        ("nb.summary(nn.Conv2d(1, 8, 3), (1, 28, 28))", r"jax\.ShapeDtypeStruct"),
        ("nb.Lambda(lambda x: x.view(2, -1))(x)", r"x\.reshape"),
        ("nb.Lambda(lambda x: x.unsqueeze(0))(x)", r"jnp\.expand_dims"),
        ("nb.Lambda(lambda x: x.mean(dim=1))(x)", "dim= is axis="),
        ("nb.Lambda(lambda x: x.sum(1, keepdim=True))(x)", "keepdim= is keepdims="),
        ("nb.Lambda(__import__('torch').relu)(x)", r"nb\.nn\.functional"),
    ],
    "flax_nnx": [
        ("nb.Linear(3, 2, rngs=0)", r"nb\.seed\(0\)"),
        ("nb.Linear(in_features=3, out_features=2, use_bias=False)", ""),
        ("nb.Linear(3, 2, kernel_init=jax.nn.initializers.lecun_normal())", ""),
        (
            "nb.Conv2d(in_features=3, out_features=8, kernel_size=(3, 3), strides=2, padding='SAME')",
            "",
        ),
        ("nb.Conv(3, 8, kernel_size=(3, 3))", "nb.Conv2d"),
        ("nb.BatchNorm(8)", "momentum is the share of the new value"),
        ("nb.BatchNorm2d(8, epsilon=1e-5)", ""),
        ("nb.BatchNorm2d(8, use_running_average=True)", r"model\.eval\(\)"),
        ("nb.Dropout(rate=0.5)", ""),
        ("nb.Dropout(0.5, deterministic=True)", r"model\.eval\(\)"),
        (
            "nb.Linear(3, 2)(jnp.ones((1, 3)), training=True)",
            r"model\.train\(\) and model\.eval\(\)",
        ),
        ("nb.LayerNorm(num_features=8, epsilon=1e-6)", ""),
        ("nb.Embed(10, 3)", "nb.Embedding"),
        ("nb.Embedding(num_embeddings=10, features=3)", ""),
        ("nb.MultiHeadDotProductAttention(8)", "nb.MultiHeadAttention"),
        ("nb.Param(jnp.zeros(3))", "nb.Parameter"),
        ("nb.BatchStat(jnp.zeros(3))", "nb.Buffer"),
        ("nb.Rngs(0)", r"nb\.seed\(0\)"),
        ("nb.List([nb.Linear(2, 2)])", "plain list"),
        ("nb.max_pool(jnp.ones((1, 4, 4, 3)), (2, 2))", "nb.max_pool2d"),
        ("nb.relu(jnp.ones(3))", ""),
        ("nb.swish(jnp.ones(3))", "nb.silu"),
        ("nb.jit(lambda model, x: model(x))(model, x)", ""),
        ("nb.value_and_grad(lambda model: (model(x) ** 2).mean())(model)", ""),
        ("nb.Optimizer(model, optax.adam(1e-3))", "nb.Optax"),
        ("nb.ModelAndOptimizer(model, optax.adam(1e-3))", "nb.Optax"),
        ("optimizer.update(model, nb.grad(lambda m: (m(x) ** 2).mean())(model))", ""),
        ("nb.split(model)", "model.partition"),
        ("nb.state(model)", "model.v"),
        ("nb.display(model)", "nb.show"),
        ("nb.remat(jnp.sin)", "nb.checkpoint"),
        ("nb.tabulate(model, x)", "nb.summary"),
        ("nb.Linear(3, 2, dtype=jnp.bfloat16, param_dtype=jnp.float32)", r"v=model\.v\.astype"),
        ("nb.Linear(3, 2, kernel_init=nb.initializers.xavier_uniform())", r"nb\.nn\.initializers"),
        ("nb.nn.initializers.xavier_uniform()", r"nb\.GlorotUniform"),
        ("nb.GroupNorm(num_features=8, num_groups=2)", ""),
        ("nb.MultiHeadAttention(num_heads=2, in_features=8)", ""),
        (
            "nb.MultiHeadAttention(num_heads=2, in_features=8, qkv_features=8)",
            "as wide as features=",
        ),
        ("nb.OptimizedLSTMCell(3, 4)", r"nb\.LSTMCell"),
        ("nb.RNN(nb.LSTMCell(3, 4))", "RNN needs hidden_features"),
        ("nb.LinearGeneral(3, 4)", r"jnp\.einsum"),
        (
            "type('MLP', (nb.Module,), {'__annotations__': {'features': int}})(features=4)",
            "dataclasses.dataclass",
        ),
        (
            "type('MLP', (nb.Module,), {'__annotations__': {'features': int}})(4)",
            "dataclasses.dataclass",
        ),
        (
            "type('MLP', (nb.Module,), {'setup': lambda self: None, 'forward': lambda self, x: self.dense(x)})()(x)",
            "in __init__",
        ),
        ("nb.Linear(3, 2)(x, train=True)", r"model\.train\(\) and model\.eval\(\)"),
        (
            "optimizer.update(nb.grad(lambda m: (m(x) ** 2).mean())(model))",
            r"optimizer\.update\(model, grads\)",
        ),
        ("nb.update(model, model.v)", r"optimizer\.update\(model, grads\)"),
        ("nb.view(model, deterministic=True)", r"model\.eval\(\)"),
        ("nb.Intermediate", r"nb\.track"),
        ("model.sow('intermediates', 'h', x)", r"nb\.tap"),
        ("model.kernel", r"\.weight"),
        ("model.variables", r"model\.v"),
        ("model.bind({})", r"model\(x, v=v\)"),
        ("nb.train_state.TrainState.create(apply_fn=model)", "nb.save_checkpoint"),
        ("nb.split_rngs(splits=3)", r"nb\.stack"),
        ("nb.fori_loop(0, 3, lambda i, c: c, 0)", r"nb\.scan"),
        ("nb.custom_vjp(jnp.sin)", r"jax\.custom_vjp"),
        ("nb.make_causal_mask(x)", "is_causal=True"),
        ("nb.with_partitioning(nb.Zeros(), ('data',))", r"nb\.shard"),
        ("nb.bridge.ToNNX(model)", r"nb\.from_flax"),
    ],
    "equinox": [
        ("nb.nn.Linear(3, 2, use_bias=False, key=jax.random.key(0))", ""),
        ("nb.nn.Conv2d(1, 3, kernel_size=4, key=jax.random.key(0))", ""),
        ("nb.nn.MLP(2, 8, 1, 2, key=jax.random.key(0))", "nb.Sequential"),
        ("nb.nn.Dropout(p=0.5)", ""),
        ("nb.nn.LayerNorm(shape=8)", ""),
        ("nb.nn.MaxPool2d(kernel_size=2, stride=2)", ""),
        ("nb.nn.Lambda(jax.nn.relu)", ""),
        ("nb.nn.MultiheadAttention(2, 8, key=jax.random.key(0))", "nb.MultiHeadAttention"),
        ("nb.filter_jit(lambda m, x: m(x))", "nb.jit"),
        ("nb.filter_value_and_grad(lambda m: 0.0)", "nb.value_and_grad"),
        ("nb.filter_vmap(lambda x: x)", "nb.vmap"),
        ("nb.apply_updates(model, model)", "optimizer.update"),
        ("nb.tree_at(lambda m: m.weight, model, x)", r"model\.weight = array"),
        ("nb.is_array(x)", "model.partition"),
        ("nb.partition(model, nb.is_array)", "model.partition"),
        ("nb.tree_serialise_leaves('model.eqx', model)", "model.save_weights"),
        ("nb.inference_mode(model)", r"model\.eval\(\)"),
        ("jax.tree.leaves(model)", ""),
        ("jax.vmap(model)(x)", ""),
    ],
    "keras": [
        ("nb.layers.Dense(10)", "nb.nn"),
        ("nb.nn.Dense(10, activation='relu')", "nb.Linear"),
        ("nb.Linear(3, units=2)", ""),
        ("nb.Linear(3, 2, activation='relu')", "nb.ReLU"),
        ("nb.Linear(3, 2, kernel_initializer=nb.GlorotUniform())", ""),
        ("nb.Conv2D(3, filters=8, kernel_size=3, strides=2, padding='same', use_bias=False)", ""),
        ("nb.Conv2D(3, 8, 3, data_format='channels_first', dilation_rate=2)", ""),
        ("nb.Conv2D(32, kernel_size=(3, 3), activation='relu')", "nb.ReLU"),
        ("nb.MaxPooling2D(2)", "nb.MaxPool2d"),
        ("nb.MaxPool2D(pool_size=2, strides=2)", ""),
        ("nb.GlobalAveragePooling2D()", "AdaptiveAvgPool2d"),
        ("nb.BatchNormalization()", "nb.BatchNorm2d"),
        ("nb.Embedding(input_dim=10, output_dim=3)", ""),
        ("nb.LSTM(3, units=4)", ""),
        ("nb.LSTM(3, 4, return_sequences=True)", ""),
        ("nb.Dropout(0.5, seed=1)", ""),
        ("nb.Input(shape=(3,))", "not needed"),
        ("nb.Sequential([nb.Linear(3, 4), nb.ReLU()])", ""),
        ("nb.optimizers.Adam(learning_rate=1e-3)", "nb.optim"),
        ("nb.Adam(learning_rate=1e-3, beta_1=0.9, beta_2=0.99)", ""),
        ("nb.RMSprop(learning_rate=1e-3, rho=0.9)", ""),
        ("nb.losses.SparseCategoricalCrossentropy(from_logits=True)", "nb.cross_entropy"),
        ("model.compile(optimizer='adam', loss='mse')", "optimizer"),
        ("model.fit(x, x, epochs=2)", "nb.batches"),
        ("model.evaluate(x, x)", r"model\.eval\(\)"),
        ("model.predict(x)", r"model\.eval\(\)\(x\)"),
        ("model.summary()", r"nb\.summary\(model, x\)"),
        ("model.save('model.keras')", "save_weights"),
        ("model.get_weights()", "state_dict"),
        ("model.add(nb.Linear(3, 3))", "nb.Sequential"),
        ("model.layers", "named_modules"),
        ("model.count_params()", "nb.summary"),
        ("setattr(model, 'trainable', False)", "requires_grad_"),
        ("nb.callbacks.EarlyStopping()", "nb.Live"),
        ("nb.datasets.mnist.load_data()", "nb.batches"),
        ("model.trainable_variables", "parameters"),
        ("optimizer.apply_gradients([])", "optimizer.update"),
        ("nb.GradientTape()", "nb.value_and_grad"),
        ("nb.set_random_seed(0)", r"nb\.seed\(0\)"),
        ("nb.models.Sequential([])", r"nb\.Sequential"),
        ("nb.utils.to_categorical([1, 2], 10)", r"jax\.nn\.one_hot"),
        ("nb.Linear(10)", r"Linear needs out_features, as in Linear\(in_features, out_features"),
        ("nb.LSTM(32, return_sequences=True)", "LSTM needs hidden_features"),
        ("nb.Linear(units=2, input_dim=3)", ""),
        ("nb.Linear(3, 2, activation=None, kernel_regularizer=None, name=None)", ""),
        ("nb.Linear(3, 2, kernel_regularizer='l2')", "weight_decay="),
        ("nb.Linear(3, 2, trainable=False)", "requires_grad_"),
        ("nb.Linear(3, 2, kernel_initializer='he_normal')", r"nb\.KaimingNormal\(\)"),
        ("nb.Embedding(1000, 64, mask_zero=True)", "mask"),
        ("nb.GRU(3, 4, recurrent_dropout=0.1)", r"nb\.Dropout"),
        ("nb.MultiHeadAttention(num_heads=2, key_dim=8)", "num_heads times key_dim"),
        ("nb.nn.Bidirectional(nb.LSTM(3, 4))", "bidirectional=True"),
        ("nb.nn.TimeDistributed(nb.Linear(3, 4))", "leading axes"),
        ("nb.nn.Rescaling(1 / 255)", "x / 255"),
        ("nb.nn.UpSampling2D()", r"nb\.Upsample"),
        ("nb.nn.concatenate([x, x])", r"jnp\.concatenate"),
        ("nb.activations.relu(x)", r"nb\.relu"),
        ("nb.regularizers.l2(0.01)", "weight_decay="),
        ("nb.ops.matmul(x, x)", r"jax\.numpy"),
        ("nb.random.normal((3,))", r"nb\.RandomStream"),
        ("nb.backend.clear_session()", "nothing is kept"),
        ("nb.mixed_precision.set_global_policy('mixed_float16')", r"model\.v\.astype"),
        ("nb.applications.ResNet50()", r"nb\.from_keras"),
        ("nb.BinaryCrossentropy(from_logits=True)", r"nb\.binary_cross_entropy"),
        ("nb.Adam(learning_rate=1e-3, weight_decay=1e-4)", r"nb\.AdamW"),
        ("nb.Adam(learning_rate=1e-3, global_clipnorm=1.0)", r"nb\.clip_by_global_norm"),
        ("nb.SGD(learning_rate=0.1, decay=1e-6)", "lr= may be a schedule"),
        ("optimizer.learning_rate", r"optimizer\.lr"),
        ("model.get_layer('dense')", "named_modules"),
        ("model.built", r"model\.built_"),
        ("nb.load_model('model.keras')", r"model\.load_weights"),
        (
            "type('Net', (nb.Module,), {'call': lambda self, x: x})()(x)",
            "rename its call to forward",
        ),
        (
            "type('Dense', (nb.Module,), {'__init__': lambda self: setattr(self, 'w', self.add_weight(shape=(3, 2)))})()",
            r"nb\.Parameter",
        ),
        ("nb.batches((x, x), batch_size=2)", ""),
        ("nb.batches(x, x, 2)", r"nb\.batches\(\(x, y\), 64\)"),
    ],
    "functional": [
        ("nb.Linear(3, output_size=2, with_bias=False)", ""),
        ("nb.Linear(3, 2, w_init=nb.GlorotUniform(), b_init=nb.Zeros())", ""),
        ("nb.BatchNorm(True, True, 0.9)", "momentum is the share of the new value"),
        ("nb.transform(lambda x: x)", r"model\(x, v=v\)"),
        ("nb.get_parameter('w', [3])", "nb.Parameter"),
        ("nb.next_rng_key()", "nb.RandomStream"),
        ("nb.dropout(x, 0.5, jax.random.key(0))", ""),
        ("model.init(jax.random.key(0), x)", "model.v"),
        ("model.apply(model.v, x)", r"model\(x, v=v\)"),
        ("jax.value_and_grad(lambda v: (model(x, v=v) ** 2).mean())(model.v)", ""),
    ],
}
ALL = [(page, line, answer) for page, lines in LINES.items() for line, answer in lines]


def names():
    """What a notebook has when such a line is typed into it."""
    import jax
    import jax.numpy as jnp
    import optax

    import nbmodule as nb

    model = nb.Linear(3, 3)
    optimizer = nb.Adam(1e-3)
    x = jnp.ones((2, 3))
    return {
        "nb": nb, "nn": nb.nn, "F": nb.nn.functional, "optim": nb.optim, "jax": jax, "jnp": jnp, "optax": optax, "model": model,
        "optimizer": optimizer, "x": x, "loss": nb.mse_loss(model(x), x),
    }  # fmt: skip


def answer_to(line):
    """What the line is answered with: None where it works."""
    try:
        eval(line, names())
    except Exception as error:  # noqa: BLE001 - whatever the answer is
        cures = [note for note in getattr(error, "__notes__", ()) if not note.startswith("in ")]
        return " ".join(cures) or str(error)
    return None


def test_the_list_is_long_enough():
    assert len(ALL) >= 80 and len({line for _, line, _ in ALL}) == len(ALL)


@pytest.mark.parametrize(("page", "line", "answer"), ALL, ids=[line for _, line, _ in ALL])
def test_a_first_line_works_or_is_answered_with_the_cure(page, line, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = answer_to(line)
    assert re.search(answer, found or "") if answer else found is None, f"{line}: {found}"


@pytest.mark.parametrize("page", LINES)
def test_the_page_shows_these_lines(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(
        "make_first_lines", ROOT / "tools" / "make_first_lines.py"
    )
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    path = ROOT / "docs" / "coming_from" / f"{page}.md"
    assert path.read_text(encoding="utf-8") == maker.with_table(
        path.read_text(encoding="utf-8"), LINES[page], answer_to
    ), "run `python tools/make_first_lines.py`"
