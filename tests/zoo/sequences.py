"""Models of texts and sequences, small: BERT, GPT, encoder layers, LSTM, GRU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """As Hugging Face writes it: three projections, heads split by view, SDPA."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dense = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.value(x)
        mixed = functional.scaled_dot_product_attention(
            query, key, self.split(value), dropout_p=0.1 if self.training else 0.0
        )
        batch, _, length, _ = mixed.shape
        out: Tensor = self.dense(mixed.transpose(1, 2).reshape(batch, length, -1))
        return out


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.intermediate = nn.Linear(width, 4 * width)
        self.output = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.dropout(self.attention(x)))
        hidden = functional.gelu(self.intermediate(x))
        out: Tensor = self.norm2(x + self.dropout(self.output(hidden)))
        return out


class Bert(nn.Module):
    position_ids: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(50, 16, padding_idx=0)
        self.position_embeddings = nn.Embedding(12, 16)
        self.token_type_embeddings = nn.Embedding(2, 16)
        self.register_buffer("position_ids", torch.arange(12).unsqueeze(0), persistent=False)
        self.norm = nn.LayerNorm(16, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(16, 4) for _ in range(2))
        self.pooler = nn.Linear(16, 16)
        self.classifier = nn.Linear(16, 3)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        positions = self.position_ids[:, : input_ids.shape[1]]
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        x = self.norm(x + self.position_embeddings(positions))
        for layer in self.layers:
            x = layer(x)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return x, self.classifier(pooled)


class Encoder(nn.Module):
    """nn.TransformerEncoderLayer, whose attention packs three projections into one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.embed(tokens)).mean(dim=1))
        return out


class GptBlock(nn.Module):
    """GPT-2's: one projection for query, key and value; tanh-approximated GELU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous().view(batch, length, width)
        x = x + self.c_proj(mixed)
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Gpt(nn.Module):
    """The embedding is the output matrix too: one tensor under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(30, 16)
        self.wpe = nn.Embedding(8, 16)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(GptBlock(16, 2) for _ in range(2))
        self.ln_f = nn.LayerNorm(16)
        self.lm_head = nn.Linear(16, 30, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(0, tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(places))
        for block in self.h:
            x = block(x)
        out: Tensor = self.lm_head(self.ln_f(x))
        return out


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.fc = nn.Linear(16, 3)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x, (hidden, _) = self.lstm(self.embed(tokens))
        return self.fc(x[:, -1]), hidden


class Gru(nn.Module):
    """Sequence first, and the start state is handed in."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(5, 7, bidirectional=True)
        self.fc = nn.Linear(14, 2)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        out: Tensor = self.fc(self.gru(x, state)[0])
        return out


class Gru2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(5, 7, num_layers=2, batch_first=True)
        self.fc = nn.Linear(7, 2)

    def forward(self, x: Tensor) -> Tensor:
        _, last = self.gru(x)
        out: Tensor = self.fc(last[-1])
        return out
