"""Models of Hugging Face's transformers, with as few and small layers as their configs allow.

What a config does not say is as it is by default: users change little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Inputs = Callable[[], dict[str, Any]]


def ids(length: int = 7) -> dict[str, Any]:
    return {"input_ids": torch.randint(3, 99, (2, length))}


def pixels(side: int = 32) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, side, side)}


def pairs() -> dict[str, Any]:
    return {**ids(), "decoder_input_ids": torch.randint(3, 99, (2, 5))}


def sound() -> dict[str, Any]:
    return {"input_values": torch.randn(2, 1024)}


D = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
}
KV = dict(D, num_key_value_heads=2)
IMAGE = dict({k: v for k, v in D.items() if k != "vocab_size"}, image_size=32, patch_size=8)

MODELS: dict[str, tuple[str, str, dict[str, Any], Inputs]] = {
    "bert": ("Bert", "BertForSequenceClassification", D, ids),
    "roberta": ("Roberta", "RobertaForSequenceClassification", D, ids),
    "distilbert": (
        "DistilBert",
        "DistilBertForSequenceClassification",
        {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
        ids,
    ),
    "albert": ("Albert", "AlbertForSequenceClassification", dict(D, embedding_size=16), ids),
    "electra": ("Electra", "ElectraForSequenceClassification", dict(D, embedding_size=16), ids),
    "deberta-v2": ("DebertaV2", "DebertaV2ForSequenceClassification", D, ids),
    "deberta": ("Deberta", "DebertaForSequenceClassification", D, ids),
    "mpnet": ("MPNet", "MPNetForSequenceClassification", D, ids),
    "mobilebert": (
        "MobileBert",
        "MobileBertForSequenceClassification",
        dict(D, embedding_size=32, true_hidden_size=32, intra_bottleneck_size=32),
        ids,
    ),
    "squeezebert": (
        "SqueezeBert",
        "SqueezeBertForSequenceClassification",
        dict(D, embedding_size=32, intermediate_size=64),
        ids,
    ),
    "longformer": (
        "Longformer",
        "LongformerForSequenceClassification",
        dict(D, attention_window=4),
        lambda: ids(8),
    ),
    "funnel": (
        "Funnel",
        "FunnelForSequenceClassification",
        {
            "vocab_size": 99,
            "block_sizes": [1, 1],
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 37,
        },
        lambda: ids(8),
    ),
    "xlnet": (
        "XLNet",
        "XLNetForSequenceClassification",
        {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 37},
        ids,
    ),
    "convbert": ("ConvBert", "ConvBertForSequenceClassification", dict(D, embedding_size=32), ids),
    "rembert": (
        "RemBert",
        "RemBertForSequenceClassification",
        dict(D, input_embedding_size=16, output_embedding_size=16),
        ids,
    ),
    "camembert-mlm": ("Camembert", "CamembertForMaskedLM", D, ids),
    "modernbert": (
        "ModernBert",
        "ModernBertForSequenceClassification",
        dict(D, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
        ids,
    ),
    "layoutlm": ("LayoutLM", "LayoutLMForSequenceClassification", D, ids),
    "gpt2": (
        "GPT2",
        "GPT2LMHeadModel",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4},
        ids,
    ),
    "gpt-neo": (
        "GPTNeo",
        "GPTNeoForCausalLM",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
        },
        ids,
    ),
    "gptj": (
        "GPTJ",
        "GPTJForCausalLM",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
        ids,
    ),
    "gpt-neox": ("GPTNeoX", "GPTNeoXForCausalLM", D, ids),
    "opt": (
        "OPT",
        "OPTForCausalLM",
        {
            "vocab_size": 99,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 37,
            "word_embed_proj_dim": 32,
        },
        ids,
    ),
    "bloom": (
        "Bloom",
        "BloomForCausalLM",
        {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        ids,
    ),
    "llama": ("Llama", "LlamaForCausalLM", KV, ids),
    "mistral": ("Mistral", "MistralForCausalLM", KV, ids),
    "mixtral": (
        "Mixtral",
        "MixtralForCausalLM",
        dict(KV, num_local_experts=4, intermediate_size=48),
        ids,
    ),
    "qwen2": ("Qwen2", "Qwen2ForCausalLM", KV, ids),
    "qwen3": ("Qwen3", "Qwen3ForCausalLM", dict(KV, head_dim=8), ids),
    "gemma": ("Gemma", "GemmaForCausalLM", dict(KV, head_dim=8), ids),
    "gemma2": ("Gemma2", "Gemma2ForCausalLM", dict(KV, head_dim=8), ids),
    "phi": ("Phi", "PhiForCausalLM", D, ids),
    "phi3": ("Phi3", "Phi3ForCausalLM", dict(KV, pad_token_id=0), ids),
    "falcon": ("Falcon", "FalconForCausalLM", D, ids),
    "olmo": ("Olmo", "OlmoForCausalLM", KV, ids),
    "stablelm": ("StableLm", "StableLmForCausalLM", KV, ids),
    "starcoder2": ("Starcoder2", "Starcoder2ForCausalLM", KV, ids),
    "mamba": (
        "Mamba",
        "MambaForCausalLM",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2},
        ids,
    ),
    "t5": (
        "T5",
        "T5ForConditionalGeneration",
        {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4},
        pairs,
    ),
    "bart": (
        "Bart",
        "BartForConditionalGeneration",
        {
            "vocab_size": 99,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 37,
            "decoder_ffn_dim": 37,
        },
        pairs,
    ),
    "pegasus": (
        "Pegasus",
        "PegasusForConditionalGeneration",
        {
            "vocab_size": 99,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 37,
            "decoder_ffn_dim": 37,
        },
        pairs,
    ),
    "mbart": (
        "MBart",
        "MBartForConditionalGeneration",
        {
            "vocab_size": 99,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 37,
            "decoder_ffn_dim": 37,
        },
        pairs,
    ),
    "whisper": (
        "Whisper",
        "WhisperForConditionalGeneration",
        {
            "vocab_size": 99,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 37,
            "decoder_ffn_dim": 37,
            "num_mel_bins": 16,
            "max_source_positions": 16,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        lambda: {
            "input_features": torch.randn(2, 16, 32),
            "decoder_input_ids": torch.randint(3, 99, (2, 5)),
        },
    ),
    "wav2vec2": (
        "Wav2Vec2",
        "Wav2Vec2ForSequenceClassification",
        dict(
            D,
            conv_dim=(32, 32),
            conv_stride=(4, 4),
            conv_kernel=(8, 8),
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=2,
        ),
        sound,
    ),
    "hubert": (
        "Hubert",
        "HubertForSequenceClassification",
        dict(
            D,
            conv_dim=(32, 32),
            conv_stride=(4, 4),
            conv_kernel=(8, 8),
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=2,
        ),
        sound,
    ),
    "vit": ("ViT", "ViTForImageClassification", IMAGE, pixels),
    "deit": ("DeiT", "DeiTForImageClassification", IMAGE, pixels),
    "beit": ("Beit", "BeitForImageClassification", IMAGE, pixels),
    "dinov2": (
        "Dinov2",
        "Dinov2ForImageClassification",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 8,
        },
        pixels,
    ),
    "swin": (
        "Swin",
        "SwinForImageClassification",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 2],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        pixels,
    ),
    "convnext": (
        "ConvNext",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
        lambda: pixels(64),
    ),
    "resnet": (
        "ResNet",
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        pixels,
    ),
    "segformer": (
        "Segformer",
        "SegformerForImageClassification",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [16, 32],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
        lambda: pixels(64),
    ),
    "mobilevit": (
        "MobileViT",
        "MobileViTForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64],
            "num_attention_heads": 4,
        },
        lambda: pixels(64),
    ),
    "mobilenet-v2": (
        "MobileNetV2",
        "MobileNetV2ForImageClassification",
        {"image_size": 64, "depth_multiplier": 0.35},
        lambda: pixels(64),
    ),
    "efficientnet": (
        "EfficientNet",
        "EfficientNetForImageClassification",
        {"image_size": 64, "width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320},
        lambda: pixels(64),
    ),
    "poolformer": (
        "PoolFormer",
        "PoolFormerForImageClassification",
        {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
        lambda: pixels(64),
    ),
    "clip": (
        "CLIP",
        "CLIPModel",
        {"text_config": dict(D), "vision_config": IMAGE, "projection_dim": 16},
        lambda: {**ids(), **pixels()},
    ),
    "siglip": (
        "Siglip",
        "SiglipModel",
        {"text_config": dict(D), "vision_config": IMAGE},
        lambda: {**ids(), **pixels()},
    ),
}


def build(name: str) -> tuple[Any, dict[str, Any]]:
    import transformers

    config, model, settings, inputs = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, f"{config}Config")(**settings))
    torch.manual_seed(1)
    return made, inputs()
