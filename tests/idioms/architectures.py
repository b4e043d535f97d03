"""Whole models of other packages, small and with random weights, in their default settings."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.idioms.table import Idiom, Inputs, floats, randint, randn

TRANSFORMERS: dict[str, Idiom] = {}
TORCHVISION: dict[str, Idiom] = {}


def _of(table: dict[str, Idiom], inputs: Inputs, **options: Any) -> Callable[[Any], Any]:
    def put(make: Callable[[], nn.Module]) -> Any:
        table[make.__name__] = Idiom(make.__name__, "architectures", make, inputs, **options)
        return make

    return put


class Plain(nn.Module):
    """A model called with tensors alone, its settings held."""

    def __init__(self, model: nn.Module, *names: str, **settings: Any) -> None:
        super().__init__()
        self.model, self.names, self.settings = model, names, settings

    def forward(self, *given: Tensor) -> Any:
        return self.model(**dict(zip(self.names, given, strict=True)), **self.settings)


def _tokens(n: int) -> tuple[Any, ...]:
    return (randint(50, n, 9) + 3,)


@_of(TRANSFORMERS, floats(3, 32, 32))
def swin() -> nn.Module:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=32, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return Plain(SwinForImageClassification(config), "pixel_values")


@_of(TRANSFORMERS, floats(3, 32, 32))
def beit() -> nn.Module:
    from transformers import BeitConfig, BeitForImageClassification

    config = BeitConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=32, use_relative_position_bias=True,
    )  # fmt: skip
    return Plain(BeitForImageClassification(config), "pixel_values")


@_of(TRANSFORMERS, floats(3, 64, 64))
def segformer() -> nn.Module:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2],
        decoder_hidden_size=16,
    )  # fmt: skip
    return Plain(SegformerForSemanticSegmentation(config), "pixel_values")


_SPEECH = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (8, 8),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "mask_time_length": 2,
    "vocab_size": 20,
}


@_of(TRANSFORMERS, floats(400))
def wav2vec2() -> nn.Module:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    return Plain(Wav2Vec2ForCTC(Wav2Vec2Config(**_SPEECH)), "input_values")


@_of(TRANSFORMERS, floats(400))
def hubert() -> nn.Module:
    from transformers import HubertConfig, HubertModel

    return Plain(HubertModel(HubertConfig(**_SPEECH)), "input_values")


@_of(TRANSFORMERS, _tokens)
def bart() -> nn.Module:
    from transformers import BartConfig, BartModel

    config = BartConfig(
        vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_position_embeddings=32,
    )  # fmt: skip
    return Plain(BartModel(config), "input_ids", use_cache=False)


@_of(TRANSFORMERS, floats(3, 64, 64))
def detr() -> nn.Module:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage4"],
    )  # fmt: skip
    config = DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=backbone, d_model=16, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, num_queries=5, encoder_layerdrop=0.1, decoder_layerdrop=0.1,
    )  # fmt: skip
    return Plain(DetrForObjectDetection(config), "pixel_values")


@_of(TRANSFORMERS, _tokens)
def xlnet() -> nn.Module:
    from transformers import XLNetConfig, XLNetModel

    config = XLNetConfig(vocab_size=60, d_model=16, n_layer=2, n_head=2, d_inner=32)
    return Plain(XLNetModel(config), "input_ids", use_mems=False)


@_of(TRANSFORMERS, _tokens)
def roberta() -> nn.Module:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32,
    )  # fmt: skip
    return Plain(RobertaForSequenceClassification(config), "input_ids")


@_of(TORCHVISION, floats(3, 64, 64))
def googlenet() -> nn.Module:
    from torchvision.models import googlenet as made

    return made(weights=None, num_classes=5, init_weights=False)


@_of(TORCHVISION, floats(3, 80, 80))
def inception_v3() -> nn.Module:
    from torchvision.models import inception_v3 as made

    return made(weights=None, num_classes=5, init_weights=False, aux_logits=False)


@_of(TORCHVISION, lambda n: (randn(n, 3, 299, 299),), sizes=(2, 3))
def inception_v3_with_its_second_head() -> nn.Module:
    from torchvision.models import inception_v3 as made

    return made(weights=None, num_classes=5, init_weights=False)


@_of(TORCHVISION, floats(3, 64, 64))
def swin_t() -> nn.Module:
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer([2, 2], 8, [2, 2], [2, 4], [4, 4], num_classes=5)


@_of(TORCHVISION, floats(3, 64, 64))
def lraspp() -> nn.Module:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    return lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)


@_of(TORCHVISION, floats(3, 64, 64))
def ssd_head() -> nn.Module:
    """The heads of a detector, whose boxes are decoded when it is tested."""
    from torchvision.models.detection.ssdlite import SSDLiteHead

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.BatchNorm2d(8), nn.ReLU6(True))
            self.head = SSDLiteHead([8], [4], 3, nn.BatchNorm2d)

        def forward(self, x: Tensor) -> Any:
            found = self.head([self.stem(x)])
            if self.training:
                return found
            boxes, scores = found["bbox_regression"], found["cls_logits"].softmax(-1)
            boxes = boxes.clone()
            boxes[..., :2] = (
                boxes[..., :2] * 0.1 + torch.linspace(0, 1, boxes.shape[1])[None, :, None]
            )
            boxes[..., 2:] = torch.exp(boxes[..., 2:].clamp(max=4) * 0.2)
            return {"boxes": boxes, "scores": scores}

    return Detector()
