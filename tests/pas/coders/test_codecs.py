"""Codecs by config, and the fast tier's choice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.errors import Damaged, DlvError, NewerFormat
from dlv.pas.coders.codecs import (
    CODECS,
    RawCodec,
    choose,
    choose_text,
    codec_of,
    context_codec_of,
    context_codecs,
)
from dlv.pas.layouts.segments import Ieee, split_matrix
from tests.conformance.codec import CodecSuite

GOLDEN = Path(__file__).parents[2] / "golden" / "codec" / "raw"


class TestRaw(CodecSuite):
    codec = RawCodec()


def test_it_changes_nothing() -> None:
    data = b"\x00\x01\xfe"
    assert RawCodec().encode(data) is data


def test_golden_bytes_decode() -> None:
    stored, plain = (GOLDEN / "stored.bin").read_bytes(), (GOLDEN / "plain.bin").read_bytes()
    assert len(plain) == 260
    assert RawCodec().decode(stored, len(plain)) == plain


def weights(count: int) -> list[bytes]:
    values = np.random.default_rng(2).normal(0, 0.05, count).astype("<f4").tobytes()
    return [bytes(plane) for plane in split_matrix(Ieee(), values, "float32", (count,))[0]]


def test_trained_weights_keep_noise_raw_and_exponents_small() -> None:
    planes = weights(200_000)
    chosen = [choose(plane) for plane in planes]
    assert [codec["id"] for codec, _ in chosen] == ["zstd", "raw", "raw", "raw"]
    counts = np.bincount(np.frombuffer(planes[0], np.uint8))
    part = counts[counts > 0] / len(planes[0])
    entropy = -float((part * np.log2(part)).sum()) / 8
    assert len(chosen[0][1]) / len(planes[0]) < entropy * 1.04


def test_what_repeats_only_far_away_is_found() -> None:
    block = random.Random(1).randbytes(150_000)
    codec, encoded = choose(block * 4)
    assert codec == {"id": "zstd"}
    assert len(encoded) < 1.2 * len(block)


def test_zeros_and_short_planes() -> None:
    assert len(choose(bytes(1_000_000))[1]) < 1000
    assert choose(b"\x07")[0] == {"id": "raw"}
    assert len(choose(b"ab" * 5000)[1]) < 100


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=100), st.integers(1, 3000), st.booleans())
def test_the_choice_decodes_and_is_never_larger(data: bytes, times: int, text: bool) -> None:
    plane = data * times
    config, encoded = (choose_text if text else choose)(plane)
    assert bytes(codec_of(config).decode(encoded, len(plane))) == plane
    assert len(encoded) <= max(len(plane), 0 if plane else 20)


def test_nothing_still_takes_bytes_as_a_named_object() -> None:
    assert len(choose_text(b"")[1]) > 0


@pytest.mark.parametrize("config", [{"id": "zstd", "level": 3}, {"id": "cmix"}, {}])
def test_unknown_codecs_are_named(config: dict[str, object]) -> None:
    with pytest.raises(NewerFormat, match="codec"):
        codec_of(config)


@pytest.mark.parametrize("size", [0, 3, True, "2", [2], None])
def test_numbers_of_an_impossible_size_are_refused(size: object) -> None:
    with pytest.raises(Damaged, match="impossible size"):
        codec_of({"id": "pco", "bytes": size})


def test_each_row_names_itself() -> None:
    for codec_id, (_, keys) in CODECS.items():
        config = {"id": codec_id, **({"bytes": 2} if "bytes" in keys else {})}
        assert codec_of(config).get_config() == config


CONTEXT: dict[str, Any] = {"lo": 8, "scale": "ab" * 32}


@pytest.mark.parametrize("codec_id", sorted(context_codecs()))
def test_each_context_codec_keeps_its_config(codec_id: str) -> None:
    values = {**CONTEXT, "table": "cd" * 32, "bytes": 2}
    config = {"id": codec_id, **{key: values[key] for key in context_codecs()[codec_id][1]}}
    codec = context_codec_of(config)
    assert codec is not None
    assert codec.get_config() == config
    assert (codec.codec_id, codec.scale) == (codec_id, "ab" * 32)


def test_a_context_codec_is_no_plain_codec_nor_the_other_way_round() -> None:
    assert context_codec_of({"id": "zstd"}) is None
    with pytest.raises(Damaged, match="no contexts"):
        codec_of({"id": "context-zstd", **CONTEXT})


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"lo": -1}, Damaged),
        ({"lo": 128}, Damaged),
        ({"lo": True}, Damaged),
        ({"lo": "8"}, Damaged),
        ({"scale": None}, Damaged),
        ({"scale": "AB" * 32}, Damaged),
        ({"more": 1}, NewerFormat),
    ],
)
def test_wrong_context_configs_are_named(changed: dict[str, object], kind: type[DlvError]) -> None:
    with pytest.raises(kind, match="codec"):
        context_codec_of({"id": "context-zstd", **CONTEXT, **changed})
