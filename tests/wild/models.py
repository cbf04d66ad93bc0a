"""Published models of PyTorch packages, tiny and with random weights, by name.

Each function returns a model in evaluation mode, its positional and its keyword arguments; its
imports fail where the package is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]


MODELS: dict[str, Callable[[], Made]] = {}


def image(size: int = 64, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1))


def ids(length: int = 7, vocabulary: int = 90, batch: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(2, vocabulary, (batch, length), generator=generator)


def entry(package: str, name: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    def register(make: Callable[[], Made]) -> Callable[[], Made]:
        MODELS[f"{package}.{name}"] = make
        return make

    return register


# -- torchvision and timm: by the name of a constructor --
TORCHVISION = {
    "resnet18": ({"num_classes": 7}, 64),
    "mobilenet_v3_small": ({"num_classes": 7}, 64),
    "mobilenet_v2": ({"num_classes": 7, "width_mult": 0.25}, 64),
    "efficientnet_b0": ({"num_classes": 7}, 64),
    "densenet121": ({"num_classes": 7}, 64),
    "squeezenet1_1": ({"num_classes": 7}, 64),
    "shufflenet_v2_x0_5": ({"num_classes": 7}, 64),
    "regnet_y_400mf": ({"num_classes": 7}, 64),
    "vgg11_bn": ({"num_classes": 7}, 32),
    "alexnet": ({"num_classes": 7}, 64),
    "mnasnet0_5": ({"num_classes": 7}, 64),
}  # fmt: skip
TIMM = {
    "resnet50": ({"num_classes": 7, "layers": (1, 1, 1, 1)}, 64),
    "vit_tiny_patch16_224": ({"num_classes": 7, "depth": 2, "img_size": 32}, 32),
    "deit_tiny_patch16_224": ({"num_classes": 7, "depth": 2, "img_size": 32}, 32),
    "efficientnet_b0": ({"num_classes": 7}, 64),
    "mobilenetv3_small_100": ({"num_classes": 7}, 64),
    "convnext_atto": ({"num_classes": 7}, 64),
    "swin_tiny_patch4_window7_224": (
        {"num_classes": 7, "img_size": 56, "depths": (1, 1), "num_heads": (2, 2), "embed_dim": 16, "window_size": 7},
        56,
    ),
    "mixer_s32_224": ({"num_classes": 7, "img_size": 64}, 64),
    "eva02_tiny_patch14_224": ({"num_classes": 7, "img_size": 28, "depth": 2}, 28),
    "regnety_002": ({"num_classes": 7}, 64),
}  # fmt: skip


def add_constructed() -> None:
    """Register the models that one function of torchvision or timm makes from keywords."""

    def torchvision(name: str, options: dict[str, Any], size: int) -> Made:
        models = importlib.import_module("torchvision.models")
        return getattr(models, name)(weights=None, **options).eval(), (image(size),), {}

    def timm(name: str, options: dict[str, Any], size: int) -> Made:
        created = importlib.import_module("timm").create_model(name, pretrained=False, **options)
        return created.eval(), (image(size),), {}

    for package, make, table in (("torchvision", torchvision, TORCHVISION), ("timm", timm, TIMM)):
        for name, (options, size) in table.items():
            entry(package, name)(lambda m=make, n=name, o=options, s=size: m(n, o, s))


add_constructed()


@entry("torchvision", "vit")
def torchvision_vit() -> Made:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=7)
    torch.nn.init.normal_(model.heads.head.weight)  # the class starts at zero
    return model.eval(), (image(32),), {}


@entry("torchvision", "swin")
def torchvision_swin() -> Made:
    from torchvision.models import SwinTransformer

    model = SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=7)
    return model.eval(), (image(32),), {}


@entry("torchvision", "convnext")
def torchvision_convnext() -> Made:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 2)]
    return ConvNeXt(blocks, num_classes=7, layer_scale=0.5).eval(), (image(32),), {}


@entry("torchvision", "lraspp_mobilenet_v3")
def torchvision_lraspp() -> Made:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    made = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    return made.eval(), (image(64),), {}


# -- transformers: a class, its configuration, its arguments --
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4}
SMALL = {**LAYERS, "hidden_size": 32, "intermediate_size": 48}
ENCODER = {**SMALL, "vocab_size": 99, "max_position_embeddings": 64}
DECODER = {**ENCODER, "num_key_value_heads": 2}


def text() -> dict[str, Any]:
    return {"input_ids": ids()}


TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], Callable[[], dict[str, Any]]]] = {
    "bert": (
        "BertForSequenceClassification", "BertConfig",
        ENCODER,
        lambda: {"input_ids": ids(), "attention_mask": torch.tensor([[1] * 7, [1] * 4 + [0] * 3])},
    ),
    "gpt2": (
        "GPT2LMHeadModel", "GPT2Config",
        {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4},
        text,
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER, text),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**DECODER, "sliding_window": 4}, text),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", DECODER, text),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**DECODER, "head_dim": 8}, text),
    "phi": ("PhiForCausalLM", "PhiConfig", {**DECODER, "num_key_value_heads": 4}, text),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", ENCODER, text),
    "opt": (
        "OPTForCausalLM", "OPTConfig",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 48, "num_attention_heads": 4, "word_embed_proj_dim": 32},
        text,
    ),
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        lambda: {"input_ids": ids(), "decoder_input_ids": ids(5)},
    ),
    "bart": (
        "BartForConditionalGeneration", "BartConfig",
        {"vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64},
        lambda: {"input_ids": ids(), "decoder_input_ids": ids(5)},
    ),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", ENCODER, text),
    "distilbert": (
        "DistilBertModel", "DistilBertConfig",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64},
        text,
    ),
    "electra": ("ElectraModel", "ElectraConfig", {**ENCODER, "embedding_size": 16}, text),
    "albert": ("AlbertModel", "AlbertConfig", {**ENCODER, "embedding_size": 16}, text),
    "vit": ("ViTForImageClassification", "ViTConfig", {**SMALL, "image_size": 32, "patch_size": 8}, lambda: {"pixel_values": image(32)}),
    "dinov2": ("Dinov2Model", "Dinov2Config", {**SMALL, "image_size": 32, "patch_size": 8, "mlp_ratio": 2}, lambda: {"pixel_values": image(32)}),
    "clip": (
        "CLIPModel", "CLIPConfig",
        {"text_config": {**SMALL, "vocab_size": 99, "max_position_embeddings": 32, "eos_token_id": 98},
         "vision_config": {**SMALL, "image_size": 32, "patch_size": 8}, "projection_dim": 16},
        lambda: {"input_ids": ids(), "pixel_values": image(32)},
    ),
    "whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        {"vocab_size": 99, "num_mel_bins": 8, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_source_positions": 20, "max_target_positions": 20,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        lambda: {"input_features": torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(3)), "decoder_input_ids": ids(5)},
    ),
    "mamba": (
        "MambaForCausalLM", "MambaConfig",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}, text,
    ),
}  # fmt: skip


def add_transformers() -> None:
    def make(model: str, config: str, options: dict[str, Any], inputs: Any) -> Made:
        transformers = importlib.import_module("transformers")
        made = getattr(transformers, model)(getattr(transformers, config)(**options))
        return made.eval(), (), inputs()

    for name, row in TRANSFORMERS.items():
        entry("transformers", name)(lambda row=row: make(*row))


add_transformers()

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 0]])


def add_graphs() -> None:
    def make(name: str) -> Made:
        nn = importlib.import_module("torch_geometric.nn")
        nodes = torch.randn(5, 6, generator=torch.Generator().manual_seed(4))
        return getattr(nn, name)(6, 8, 2, 3).eval(), (nodes, EDGES), {}

    for name in ("GCN", "GraphSAGE", "GAT", "GIN"):
        entry("torch_geometric", name.lower())(lambda n=name: make(n))


add_graphs()
