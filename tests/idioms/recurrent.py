"""Recurrent layers, attention, encoders."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.idioms.table import body, floats, idiom, randint, randn

S = "recurrent"


@idiom(S, floats(5, 4))
class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, 2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, (h, c) = self.rnn(x)
        return self.head(out[:, -1]) + self.head(h[-1]) + self.head(c[0])


@idiom(S, floats(5, 4))
class BidirectionalGru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, 2, bidirectional=True, batch_first=True, dropout=0.3)

    def forward(self, x: Tensor) -> Tensor:
        out, h = self.rnn(x)
        return torch.cat([out.mean(1), h[-2], h[-1]], 1)


@idiom(S, floats(5, 4))
class LstmProjected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, proj_size=3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


@idiom(S, floats(5, 4))
class RnnTimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(4, 6, nonlinearity="relu")
        self.first = nn.Parameter(torch.randn(1, 1, 6))

    def forward(self, x: Tensor) -> Tensor:
        out, h = self.rnn(x.transpose(0, 1), self.first.expand(1, x.shape[0], 6).contiguous())
        return out.transpose(0, 1) + h.transpose(0, 1)


@idiom(S, lambda n: (randn(n, 5, 4), torch.arange(n) % 5 + 1))
class PackedLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=5)
        return out


@idiom(S, floats(5, 4))
class Cells(nn.Module):
    """Cells in a loop, their states gathered in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(4, 6), nn.GRUCell(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = c = g = x.new_zeros(x.shape[0], 6)
        found = []
        for place in range(x.shape[1]):
            h, c = self.lstm(x[:, place], (h, c))
            g = self.gru(h, g)
            found.append(g)
        return torch.stack(found, dim=1)


@idiom(S, floats(5, 8))
class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(x, x, x)


@idiom(
    S, lambda n: (randn(n, 5, 8), torch.arange(5).expand(n, 5) > 2 + torch.arange(n)[:, None] % 3)
)
class MaskedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(
            8, 2, batch_first=True, kdim=8, vdim=8, add_bias_kv=True
        )

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
        out: Tensor = self.attention(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False
        )[0]
        return out


@idiom(S, lambda n: (randn(n, 3, 8), randn(n, 5, 6, seed=1)))
class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, kdim=6, vdim=6, dropout=0.0)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = x.transpose(0, 1), y.transpose(0, 1)
        out: Tensor = self.attention(x, y, y, average_attn_weights=False)[0]
        return out.transpose(0, 1)


@idiom(S, floats(5, 8))
class Encoder(nn.Module):
    """In eval mode torch takes a fast path through it."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


@idiom(
    S,
    lambda n: (randn(n, 5, 8), torch.arange(5).expand(n, 5) > 2 + torch.arange(n)[:, None] % 3),
    grads=True,
)
class EncoderPadded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=False
        )
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=padding)


@idiom(S, lambda n: (randn(n, 4, 8), randn(n, 5, 8, seed=1)))
class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(layer, 1)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(4)
        return self.decoder(x, memory, tgt_mask=mask, tgt_is_causal=True)


@body(S, 5, 8)
def scaled_dot_product(y: Tensor) -> Tensor:
    q = y.view(y.shape[0], 5, 2, 4).transpose(1, 2)
    a = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    mask = torch.ones(5, 5, dtype=torch.bool).tril(1)
    b = F.scaled_dot_product_attention(q, q[:, :1], q[:, :1], attn_mask=mask, scale=0.3)
    return (a + b).transpose(1, 2).flatten(2)


@idiom(S, floats(5, 8))
class RotaryAttention(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)
        angles = torch.outer(torch.arange(9.0), 1 / 100 ** (torch.arange(0, 4, 2) / 4))
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def turned(self, x: Tensor) -> Tensor:
        half = torch.cat([-x[..., 2:], x[..., :2]], -1)
        return x * self.cos[: x.shape[-2]] + half * self.sin[: x.shape[-2]]

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = self.turned(q) @ self.turned(k).transpose(2, 3) / math.sqrt(4)
        return (F.softmax(scores, -1, dtype=torch.float32) @ v).transpose(1, 2).reshape(b, t, 8)


@idiom(S, floats(6, 8))
class ClassToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 7, 8))
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.fc(x[:, 0]) + self.fc(x[:, 1:].mean(1))


@idiom(S, lambda n: (randint(9, n, 5),), name="greedy_decoder")
class _Greedy(nn.Module):
    """Decodes a fixed number of steps, each token the best of the last."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(9, 6), nn.GRUCell(6, 6), nn.Linear(6, 9)

    def forward(self, ids: Tensor) -> Any:
        h = self.embed(ids).mean(1)
        token = torch.zeros(ids.shape[0], dtype=torch.long)
        found = torch.full((ids.shape[0], 4), -1, dtype=torch.long)
        for place in range(4):
            h = self.cell(self.embed(token), h)
            token = self.out(h).argmax(-1)
            found[:, place] = token
        return found


@idiom(S, floats(5, 8))
class LinearAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1
        state = torch.einsum("btd,bte->btde", k, self.v(x)).cumsum(1)
        below = torch.einsum("btd,btd->bt", q, k.cumsum(1))
        return torch.einsum("btd,btde->bte", q, state) / (below[..., None] + 1e-6)


@idiom(S, floats(6, 4))
class SelectiveScan(nn.Module):
    """A state-space layer, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(-torch.rand(4, 3))
        self.delta, self.bc = nn.Linear(4, 4), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        delta = F.softplus(self.delta(x))
        b, c = self.bc(x).split(3, -1)
        state = torch.zeros(x.shape[0], 4, 3, device=x.device, dtype=x.dtype)
        found = torch.empty_like(x)
        for place in range(x.shape[1]):
            step = delta[:, place, :, None]
            state = (
                state * torch.exp(step * self.a) + step * b[:, place, None] * x[:, place, :, None]
            )
            found[:, place] = (state * c[:, place, None]).sum(-1)
        return found
