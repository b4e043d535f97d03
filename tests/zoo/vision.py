"""Image models, small: LeNet, AlexNet, ResNet-16, U-Net, DenseNet, Inception, MobileNet, a GAN."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class LeNet(nn.Module):
    """The one that the same name means in Caffe's examples: 20 and 50 maps, 500 units."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.pool1 = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.pool2 = nn.MaxPool2d(2, 2)
        self.ip1 = nn.Linear(800, 500)
        self.relu1 = nn.ReLU()
        self.ip2 = nn.Linear(500, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool2(self.conv2(self.pool1(self.conv1(x))))
        x = self.ip2(self.relu1(self.ip1(torch.flatten(x, 1))))
        return functional.softmax(x, dim=-1)


class AlexNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.LocalResponseNorm(5),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(8, 16, 5, padding=2, groups=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(inplace=True),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Dropout(0.4),
            nn.Linear(16 * 2 * 2, 32),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(32, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        out: Tensor = self.classifier(torch.flatten(x, 1))
        return out


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Tensor) -> Tensor:
        side = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += side
        out: Tensor = self.relu(x)
        return out


class ResNet16(nn.Module):
    """Sixteen layers with weights on the longest way: a stem, seven blocks of two, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Residual(8, 8), Residual(8, 8), Residual(8, 8))
        self.layer2 = nn.Sequential(Residual(8, 16, 2), Residual(16, 16))
        self.layer3 = nn.Sequential(Residual(16, 32, 2), Residual(32, 32))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        out: Tensor = self.fc(self.avgpool(x).flatten(1))
        return out


class UNet(nn.Module):
    """Skip connections; up once by a transposed convolution and once by interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.up2 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.conv2 = nn.Conv2d(16, 8, 3, padding=1)
        self.up1 = nn.Upsample(scale_factor=2, mode="nearest")
        self.conv1 = nn.Conv2d(12, 4, 3, padding=1)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(self.pool(one))
        x = self.middle(self.pool(two))
        x = functional.relu(self.conv2(torch.cat([self.up2(x), two], dim=1)))
        x = functional.relu(self.conv1(torch.cat([self.up1(x), one], dim=1)))
        out: Tensor = self.head(x)
        return out


class DenseLayer(nn.Module):
    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, 2 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(2 * growth)
        self.conv2 = nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = functional.relu(self.norm1(torch.cat(features, 1)))
        x = functional.relu(self.norm2(self.conv1(x)))
        return functional.dropout(self.conv2(x), p=0.2, training=self.training)


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.layers = nn.ModuleList(DenseLayer(8 + 4 * place, 4) for place in range(3))
        self.transition = nn.Conv2d(20, 10, 1)
        self.pool = nn.AvgPool2d(2, 2)
        self.classifier = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.conv0(x)]
        for layer in self.layers:
            features.append(layer(features))
        x = self.pool(self.transition(torch.cat(features, 1)))
        x = functional.adaptive_avg_pool2d(functional.relu(x), (1, 1))
        out: Tensor = self.classifier(torch.flatten(x, 1))
        return out


class ConvNorm(nn.Module):
    def __init__(self, before: int, after: int, kernel: int | tuple[int, int], pad: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, kernel, padding=pad, bias=False)
        self.bn = nn.BatchNorm2d(after, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch1x1 = ConvNorm(3, 4, 1, 0)
        self.branch5x5_1 = ConvNorm(3, 4, 1, 0)
        self.branch5x5_2 = ConvNorm(4, 6, 5, 2)
        self.branch3x3_1 = ConvNorm(3, 4, 1, 0)
        self.branch3x3_2 = ConvNorm(4, 6, (3, 3), 1)
        self.branch_pool = ConvNorm(3, 2, 1, 0)
        self.fc = nn.Linear(18, 7)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.avg_pool2d(x, kernel_size=3, stride=1, padding=1)
        branches = [
            self.branch1x1(x),
            self.branch5x5_2(self.branch5x5_1(x)),
            self.branch3x3_2(self.branch3x3_1(x)),
            self.branch_pool(pooled),
        ]
        x = torch.cat(branches, 1)
        x = functional.max_pool2d(x, 2)
        out: Tensor = self.fc(x.mean([2, 3]))
        return out


class InvertedResidual(nn.Module):
    def __init__(self, before: int, after: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = before * expand
        self.add = stride == 1 and before == after
        self.conv = nn.Sequential(
            nn.Conv2d(before, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(inplace=True),
            nn.Conv2d(inner, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.add else out


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(inplace=True),
            InvertedResidual(8, 8, 1, 2),
            InvertedResidual(8, 12, 2, 2),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(12, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        out: Tensor = self.classifier(torch.flatten(x, 1))
        return out


class Generator(nn.Module):
    """DCGAN's: from noise to an image, by transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(10, 16, 4, 1, 0, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(True),
            nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.LeakyReLU(0.2, inplace=True),
            nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1),
            nn.Tanh(),
        )

    def forward(self, noise: Tensor) -> Tensor:
        out: Tensor = self.main(noise)
        return out
