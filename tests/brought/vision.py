"""Vision models of torchvision and timm, untrained, by name; inputs as small as they take."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

TORCHVISION = (  # noqa: SIM905
    "alexnet vgg11 vgg11_bn resnet18 resnet50 resnext50_32x4d densenet121 squeezenet1_0"
    " squeezenet1_1 googlenet inception_v3 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large"
    " mnasnet0_5 shufflenet_v2_x0_5 efficientnet_b0 regnet_y_400mf regnet_x_400mf"
    " convnext_tiny vit_b_32 swin_t segmentation.fcn_resnet50"
    " segmentation.deeplabv3_mobilenet_v3_large segmentation.lraspp_mobilenet_v3_large"
).split()
TIMM = (  # noqa: SIM905
    "vit_tiny_patch16_224 deit_tiny_patch16_224 beit_base_patch16_224 cait_xxs24_224"
    " pit_ti_224 levit_128s mixer_s32_224 gmlp_ti16_224 resmlp_12_224 convmixer_768_32"
    " convnext_atto convnextv2_atto edgenext_xx_small mobilevit_xxs mobilevitv2_050"
    " poolformer_s12 coatnet_nano_rw_224 efficientformer_l1 fastvit_t8 repvgg_a0"
    " repghostnet_050 ghostnet_050 tinynet_e lcnet_035 mobilenetv4_conv_small hardcorenas_a"
    " mnasnet_small efficientnet_lite0 regnety_002 resnest14d seresnet18 skresnet18 dla34"
    " selecsls42 inception_next_atto"
).split()
NAMES = [*(f"torchvision {name}" for name in TORCHVISION), *(f"timm {name}" for name in TIMM)]
_SIDES = {"inception_v3": 96, "convmixer_768_32": 64, "vit_b_32": 224, "swin_t": 224}


# Where `make test-slow` puts timm, torchvision, which what else is installed would load, and what
# torch's exporter of programs needs.
_PACKAGES = Path(__file__).parents[2] / ".venv" / "zoo"


def load_torchvision() -> None:
    """Import it, also where its compiled operators were made for another build of torch.

    Its models need none of them; only their names are asked for while it is loaded.
    """
    import torch

    if (folder := str(_PACKAGES)) not in sys.path:
        sys.path.append(folder)
    with contextlib.suppress(ImportError, RuntimeError):
        import torchvision

        return
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]
    operators: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    _KEPT.append(operators)
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401


_KEPT: list[Any] = []  # a library's definitions go with it


def build(name: str) -> tuple[Any, tuple[Any, ...]]:
    import torch

    load_torchvision()
    library, _, model = name.partition(" ")
    if library == "timm":
        import timm

        made: Any = timm.create_model(model, pretrained=False)
        size = made.default_cfg["input_size"]
        side = size[-1] if made.default_cfg.get("fixed_input_size") else 96
    else:
        made, side = _of_torchvision(model), _SIDES.get(model, 96)
    torch.manual_seed(1)
    return made, (torch.randn(2, 3, side, side),)


def _of_torchvision(name: str) -> Any:
    import torchvision

    factory: Any = torchvision.models
    for part in name.split("."):
        factory = getattr(factory, part)
    options: dict[str, Any] = {"weights": None}
    if "." in name:
        options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    return factory(**options)
