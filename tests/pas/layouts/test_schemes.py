"""Lossy schemes: what they may change, by how much, and what they must leave alone."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlv.canonical import matrix_hash
from dlv.errors import UsageError
from dlv.pas.layouts import schemes
from dlv.pas.layouts.schemes import Fit, Scheme, fit, parse, suits

DTYPES = ("float16", "bfloat16", "float32", "float64")
# dtype: significant bits, exponent of the last place of the smallest number
PLACES = {
    "float16": (11, -24),
    "bfloat16": (8, -133),
    "float32": (24, -149),
    "float64": (53, -1074),
}
CODED = ("uniform:8", "uniform:3", "uniform:1", "random:8", "random:2", "lloyd:8", "lloyd:2")
LARGEST = Fraction(sys.float_info.max)
EVERY = ("fp16", "bf16", "fixed:8", "fixed:2", "fixed:16", *CODED)


def numbers(raw: bytes | bytearray, dtype: str) -> list[float]:
    """By struct alone."""
    if dtype == "bfloat16":
        halves = struct.unpack(f"<{len(raw) // 2}H", raw)
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    code, size = {"float16": ("e", 2), "float32": ("f", 4), "float64": ("d", 8)}[dtype]
    return list(struct.unpack(f"<{len(raw) // size}{code}", raw))


def words(raw: bytes | bytearray, dtype: str) -> list[bytes]:
    size = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[dtype]
    return [bytes(raw[i : i + size]) for i in range(0, len(raw), size)]


def run(text: str, dtype: str, raw: bytes, shape: tuple[int, ...] | None = None) -> Fit:
    size = 2 if dtype.endswith("16") else 4 if dtype == "float32" else 8
    return fit(parse(text), dtype, shape or (1, len(raw) // size), [raw])


def after(made: Fit, raw: bytes) -> bytes:
    return raw if made.rounding is None else bytes(made.rounding.apply(raw))


def half_place(value: float, dtype: str) -> Fraction:
    """Half of the last place of the numbers near `value`."""
    bits, least = PLACES[dtype]
    exponent = max(math.frexp(value)[1] - bits, least) if value else least
    return Fraction(2) ** (exponent - 1)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[str, bytes]:
    """Any bits, plausible weights, or such that repeat; lengths around a few tables."""
    dtype = draw(st.sampled_from(DTYPES))
    size = 2 if dtype.endswith("16") else 4 if dtype == "float32" else 8
    kind = draw(st.sampled_from(("bits", "normal", "few", "mixed")))
    count = draw(st.integers(1, 600))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if kind == "bits":
        return dtype, rng.bytes(count * size)
    scale = 2.0 ** draw(st.integers(-20, 10))
    values = rng.standard_normal(count) * scale
    if kind == "few":
        values = rng.choice(values[:5], count)
    if draw(st.booleans()):
        values[rng.random(count) < 0.3] = 0.0
    if dtype == "bfloat16":
        raw = (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    else:
        raw = values.astype(f"<f{size}").tobytes()
    if kind == "mixed":
        place = draw(st.integers(0, count - 1)) * size
        raw = raw[:place] + rng.bytes(size) + raw[place + size :]
    return dtype, raw


def finite(pairs: Iterable[tuple[float, float]]) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(a), Fraction(b)) for a, b in pairs if math.isfinite(a)]


class TestEveryScheme:
    @settings(max_examples=150, deadline=None)
    @given(matrices(), st.sampled_from(EVERY))
    def test_what_must_not_change(self, matrix: tuple[str, bytes], text: str) -> None:
        dtype, raw = matrix
        made = run(text, dtype, raw)
        new = after(made, raw)
        assert len(new) == len(raw)
        old_words, new_words = words(raw, dtype), words(new, dtype)
        old, values = numbers(raw, dtype), numbers(new, dtype)
        for index, value in enumerate(old):
            if not math.isfinite(value):
                assert old_words[index] == new_words[index]  # NaN payloads, too
            else:
                assert math.isfinite(values[index])
                if value == 0:
                    assert values[index] == 0

    @settings(max_examples=60, deadline=None)
    @given(matrices(), st.sampled_from(EVERY))
    def test_twice_is_once(self, matrix: tuple[str, bytes], text: str) -> None:
        dtype, raw = matrix
        once = after(run(text, dtype, raw), raw)
        assert after(run(text, dtype, once), once) == once

    @settings(max_examples=60, deadline=None)
    @given(matrices(), st.sampled_from(EVERY), st.integers(1, 37))
    def test_any_parts_and_blocks(
        self, matrix: tuple[str, bytes], text: str, elements: int
    ) -> None:
        dtype, raw = matrix
        whole = run(text, dtype, raw)
        size = len(words(raw, dtype)[0]) * elements
        parts = [raw[start : start + size] for start in range(0, len(raw), size)]
        shape = (1, len(words(raw, dtype)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schemes, "_BLOCK", 17)
            made = fit(parse(text), dtype, shape, parts)
            rounding = made.rounding
            pieces = [part if rounding is None else bytes(rounding.apply(part)) for part in parts]
        assert made.source == whole.source == matrix_hash(dtype, shape, raw)
        assert b"".join(pieces) == after(whole, raw)

    @pytest.mark.parametrize("text", EVERY)
    def test_nothing_and_nothing_finite(self, text: str) -> None:
        assert run(text, "float32", b"", (0, 3)).rounding is None
        raw = struct.pack("<3f", math.nan, math.inf, -math.inf)
        assert after(run(text, "float32", raw), raw) == raw


class TestHalves:
    @settings(max_examples=100, deadline=None)
    @given(matrices())
    @example(("float32", struct.pack("<3f", 65504.0, 65519.0, 5.9e-8)))
    @example(("float64", struct.pack("<3d", 1 + 2**-11, 1 + 2**-11 + 2**-52, 2**-25)))
    def test_fp16_is_what_struct_makes_of_it(self, matrix: tuple[str, bytes]) -> None:
        dtype, raw = matrix
        old = [value for value in numbers(raw, dtype) if math.isfinite(value)]
        made = run("fp16", dtype, raw)
        if any(abs(value) >= 65520 for value in old):
            assert made.rounding is None
            assert "is too large for it" in made.why
            return
        for value, new in zip(numbers(raw, dtype), numbers(after(made, raw), dtype), strict=True):
            if math.isfinite(value):
                expected = struct.unpack("<e", struct.pack("<e", value))[0]
                assert (new, math.copysign(1, new)) == (expected, math.copysign(1, expected))

    @settings(max_examples=100, deadline=None)
    @given(matrices())
    def test_bf16_is_the_nearest(self, matrix: tuple[str, bytes]) -> None:
        dtype, raw = matrix
        if dtype not in ("float32", "float64"):
            return
        made = run("bf16", dtype, raw)
        if made.why:
            assert max(abs(v) for v in numbers(raw, dtype) if math.isfinite(v)) > 3.38e38
            return
        for old, new in finite(
            zip(numbers(raw, dtype), numbers(after(made, raw), dtype), strict=True)
        ):
            # A bfloat16 is a float32 whose lower half is 0; none may be nearer, ties go to even.
            if not new:
                assert abs(old) <= Fraction(2) ** -134
                continue
            word = struct.unpack("<I", struct.pack("<f", float(new)))[0]
            assert word & 0xFFFF == 0
            below = Fraction(2) ** (max(math.frexp(float(abs(new)))[1] - 8, -133))
            assert abs(old - new) <= below / 2
            if abs(old - new) == below / 2:
                assert word >> 16 & 1 == 0

    def test_too_large_for_fp16_stays_exact(self) -> None:
        raw = struct.pack("<4f", 1.0, 70000.0, 0.1, 0.2)
        made = run("fp16", "float32", raw)
        assert made.rounding is None
        assert made.why == "70000 is too large for it"


class TestFixed:
    @settings(max_examples=150, deadline=None)
    @given(matrices(), st.integers(2, 16))
    @example(("float32", struct.pack("<2f", 127.6, -1.0)), 8)
    @example(("float32", struct.pack("<2f", -127.4, -1.0)), 8)
    def test_whole_multiples_of_a_power_of_two(self, matrix: tuple[str, bytes], bits: int) -> None:
        dtype, raw = matrix
        made = run(f"fixed:{bits}", dtype, raw)
        pairs = finite(zip(numbers(raw, dtype), numbers(after(made, raw), dtype), strict=True))
        if made.rounding is None or not any(old for old, _ in pairs):
            return
        widest = max(abs(old) for old, _ in pairs)
        most = 2 ** (bits - 1) - 1
        step = Fraction(1)
        while widest / step > Fraction(most) + Fraction(1, 2):
            step *= 2
        while widest / (step / 2) <= Fraction(most) + Fraction(1, 2):
            step /= 2
        # At the very border the even multiple may be one too many: then the next step counts.
        if round(widest / step) > most:
            step *= 2
        for old, new in pairs:
            slack = half_place(float(new), dtype) if PLACES[dtype][0] < bits - 1 else 0
            assert abs(old - new) <= step / 2 + slack
            if not slack:
                assert (new / step).denominator == 1
                assert abs(new / step) <= most

    def test_eight_bits_have_at_most_255_words(self) -> None:
        raw = np.random.default_rng(3).standard_normal(50_000).astype("<f4").tobytes()
        new = after(run("fixed:8", "float32", raw), raw)
        assert 100 < len(set(words(new, "float32"))) <= 255


class TestCodes:
    @settings(max_examples=150, deadline=None)
    @given(matrices(), st.sampled_from(CODED))
    def test_few_words_and_each_element_at_its_nearest(
        self, matrix: tuple[str, bytes], text: str
    ) -> None:
        dtype, raw = matrix
        made = run(text, dtype, raw)
        new = after(made, raw)
        count = 2 ** int(text.partition(":")[2])
        pairs = finite(zip(numbers(raw, dtype), numbers(new, dtype), strict=True))
        levels = sorted({b for _, b in pairs})
        special = {
            word
            for word, value in zip(words(raw, dtype), numbers(raw, dtype), strict=True)
            if not math.isfinite(value)
        }
        assert len(levels) <= max(count, 2)
        if len(special) <= 254:
            assert len(set(words(new, dtype))) <= 256
        for old, value in pairs:
            assert abs(old - value) == min(abs(old - level) for level in levels)

    def test_a_gap_too_large_for_a_number(self) -> None:
        raw = np.array([2e307, 1.6e308, 1e300, -1.5e308], "<f8").tobytes()
        made = after(run("uniform:1", "float64", raw), raw)
        assert np.frombuffer(bytes(made), "<f8").tolist() == [1.6e308, 1.6e308, -1.5e308, -1.5e308]

    @settings(max_examples=150, deadline=None)
    @given(matrices(), st.integers(1, 8))
    def test_uniform_is_half_a_step_off_at_most(self, matrix: tuple[str, bytes], bits: int) -> None:
        dtype, raw = matrix
        made = run(f"uniform:{bits}", dtype, raw)
        pairs = finite(zip(numbers(raw, dtype), numbers(after(made, raw), dtype), strict=True))
        if not pairs:
            return
        special = {w for w in words(raw, dtype) if not math.isfinite(numbers(w, dtype)[0])}
        count = max(2, min(2**bits, 256 - len(special)))
        least, most = min(a for a, _ in pairs), max(a for a, _ in pairs)
        step = (most - least) / (count - 1)
        for old, new in pairs:
            # What float64 arithmetic and the dtype itself cost.
            slack = half_place(float(min(abs(new) + step, LARGEST)), dtype) + (most - least) / 2**48
            assert abs(old - new) <= step / 2 + slack

    @settings(max_examples=80, deadline=None)
    @given(matrices(), st.integers(1, 8))
    def test_random_levels_are_elements(self, matrix: tuple[str, bytes], bits: int) -> None:
        dtype, raw = matrix
        new = after(run(f"random:{bits}", dtype, raw), raw)
        old = [value for value in numbers(raw, dtype) if math.isfinite(value)]
        values = {value for value in numbers(new, dtype) if math.isfinite(value)}
        assert values <= set(old) | {0.0}
        if old and bits > 1:
            assert {min(old), max(old)} <= values

    def test_random_depends_on_the_matrix_alone(self) -> None:
        rng = np.random.default_rng(1)
        raw = rng.standard_normal(5000).astype("<f4").tobytes()
        one, two = (after(run("random:4", "float32", raw, (50, 100)), raw) for _ in range(2))
        assert one == two
        other = after(run("random:4", "float32", raw, (100, 50)), raw)
        assert other != one  # another shape is another matrix

    def test_the_same_bytes_as_ever(self) -> None:
        """What is rounded once must be rounded so on every machine."""
        values = [math.ldexp((i * 7919) % 10007 - 5003, -12) for i in range(4000)]
        raw = struct.pack("<4000f", *values)
        found = {
            text: matrix_hash(
                "float32", (40, 100), after(run(text, "float32", raw, (40, 100)), raw)
            )
            for text in EVERY
        }
        assert found == EXPECTED

    def test_a_mask_stays_as_it_is(self) -> None:
        raw = np.tile(np.array([0.0, 1.0, 1.0], "<f4"), 300).tobytes()
        for text in ("uniform:8", "random:1", "lloyd:4"):
            assert run(text, "float32", raw).rounding is None

    def test_one_nan_does_not_cost_the_table(self) -> None:
        values = np.random.default_rng(2).standard_normal(5000).astype("<f4")
        values[[7, 8]] = math.nan, math.inf
        for text in ("uniform:8", "lloyd:8", "random:8"):
            new = after(run(text, "float32", values.tobytes()), values.tobytes())
            assert len(set(words(new, "float32"))) <= 256


class TestLloyd:
    def error(self, text: str, raw: bytes) -> float:
        old = np.frombuffer(raw, "<f4").astype(np.float64)
        new = np.frombuffer(after(run(text, "float32", raw), raw), "<f4").astype(np.float64)
        return float(np.mean((old - new) ** 2))

    @pytest.mark.parametrize("bits", [2, 4, 8])
    @pytest.mark.parametrize("family", ["laplace", "standard_normal", "standard_cauchy"])
    def test_better_than_even_levels(self, family: str, bits: int) -> None:
        raw = getattr(np.random.default_rng(5), family)(size=30_000).astype("<f4").tobytes()
        assert self.error(f"lloyd:{bits}", raw) <= self.error(f"uniform:{bits}", raw)

    @pytest.mark.parametrize("bits", [1, 2, 3])
    def test_near_the_least_error_there_is(self, bits: int) -> None:
        values = np.sort(np.random.default_rng(bits).laplace(size=300).astype("<f4"))
        best = least_error(values.astype(np.float64), 2**bits)
        assert best <= self.error(f"lloyd:{bits}", values.tobytes()) * (1 + 1e-9)
        assert self.error(f"lloyd:{bits}", values.tobytes()) <= 1.15 * best

    def test_a_sample_of_a_large_matrix_is_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        raw = np.random.default_rng(6).standard_normal(200_000).astype("<f4").tobytes()
        every = self.error("lloyd:6", raw)
        monkeypatch.setattr(schemes, "SAMPLE", 20_000)
        assert every < self.error("lloyd:6", raw) <= 1.1 * every

    def test_no_stretch_of_a_large_matrix_is_left_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(schemes, "SAMPLE", 1000)
        places = schemes._positions(12_345)
        assert len(places) == 1000
        assert places[0] < 13
        assert places[-1] >= 12_345 - 13
        assert (np.diff(places) > 0).all()

    def test_the_sample_is_of_these_places(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(schemes, "SAMPLE", 500)
        monkeypatch.setattr(schemes, "_BLOCK", 77)
        values = np.random.default_rng(0).permutation(4000).astype("<f4") + 1
        survey = schemes._Survey("float32", (40, 100), sample=True)
        for start in range(0, 4000, 1000):
            survey.add(values[start : start + 1000].tobytes())
        wanted = sorted([1.0, 4000.0, *values[schemes._positions(4000)].tolist()])
        assert survey.spread("0" * 64).sample.tolist() == wanted


def least_error(values: np.ndarray, count: int) -> float:
    """The optimum for sorted values, by dynamic programming over where groups end."""
    n = len(values)
    sums, squares = np.zeros(n + 1), np.zeros(n + 1)
    sums[1:], squares[1:] = np.cumsum(values), np.cumsum(values**2)

    def cost(a: int, b: int) -> float:
        total = sums[b] - sums[a]
        return float(squares[b] - squares[a] - total * total / (b - a))

    best = [0.0] + [math.inf] * n
    for _ in range(count):
        best = [0.0] + [
            min(best[a] + cost(a, b) for a in range(b) if best[a] < math.inf)
            for b in range(1, n + 1)
        ]
    return best[n] / n


class TestSyntax:
    @pytest.mark.parametrize("text", ["fp16", "bf16", "fixed:12", "uniform:1", "lloyd:8"])
    def test_there_and_back(self, text: str) -> None:
        scheme = parse(text)
        assert str(scheme) == text
        assert parse(f" {text} ") == scheme

    def test_the_config_of_the_format(self) -> None:
        assert parse("uniform:8").get_config() == {"id": "uniform", "bits": 8}
        assert parse("fp16").get_config() == {"id": "fp16"}

    @pytest.mark.parametrize(
        ("text", "why", "hint"),
        [
            ("uniform", "uniform takes 1 to 8 bits", "for example uniform:8"),
            ("uniform:9", "uniform takes 1 to 8 bits", "for example uniform:8"),
            ("fixed:1", "fixed takes 2 to 16 bits", "for example fixed:8"),
            ("lloyd:08", "lloyd takes 1 to 8 bits", "for example lloyd:8"),
            ("lloyd:-1", "lloyd takes 1 to 8 bits", "for example lloyd:8"),
            ("fp16:8", "fp16 takes no bits", "write fp16"),
        ],
    )
    def test_wrong_bits(self, text: str, why: str, hint: str) -> None:
        with pytest.raises(UsageError, match="unknown quantization") as caught:
            parse(text)
        assert (caught.value.why, caught.value.hint) == (why, hint)

    @pytest.mark.parametrize(
        ("text", "meant"),
        [("unform:8", "uniform:8"), ("uniform8", "uniform:8"), ("float16", None), ("fp61", "fp16")],
    )
    def test_did_you_mean(self, text: str, meant: str | None) -> None:
        with pytest.raises(UsageError) as caught:
            parse(text)
        assert "fixed:K" in (caught.value.why or "")
        assert meant is None or meant in caught.value.did_you_mean


class TestSuits:
    @pytest.mark.parametrize(
        ("dtype", "shape", "fits"),
        [
            ("float32", (20, 50), True),
            ("float64", (20, 1, 5, 5), True),
            ("bfloat16", (2, 2), True),
            ("float32", (50,), False),
            ("float32", (), False),
            ("float32", (1, 50), False),
            ("float32", (1, 1, 768), False),
            ("int32", (20, 50), False),
            ("bool", (20, 50), False),
            ("complex64", (20, 50), False),
            ("float8_e4m3", (20, 50), False),
            ("raw:gguf_q4_0", (20, 50), False),
        ],
    )
    def test_matrices_of_numbers_not_vectors(
        self, dtype: str, shape: tuple[int, ...], fits: bool
    ) -> None:
        assert suits(parse("uniform:8"), dtype, shape) is fits

    @pytest.mark.parametrize("scheme", [Scheme("fp16"), Scheme("bf16")])
    def test_halves_of_what_is_wider_only(self, scheme: Scheme) -> None:
        assert suits(scheme, "float64", (2, 2))
        assert not suits(scheme, "float16", (2, 2))
        assert not suits(scheme, "bfloat16", (2, 2))


EXPECTED = {
    "fp16": "c79f542de102af6c5013be0c0d380dff1be8c35c6b877be42bb445e5b05cfd00",
    "bf16": "dd36af913b58114c6f32f54e09a3966f505ab6f58cec441ab4e2a815b28c1553",
    "fixed:8": "033fa3c0ed1fc12a91bb68f018c2e13c825a8f31817176ba4092209b5233f8c0",
    "fixed:2": "109d408503727ecea8b5ca97f6e9854959a0365aa62ea44bf4f1a30377d65931",
    "fixed:16": "34dad2efbdc96e879ef29f6d51388c0ee8094531cd65babf51cb925101434235",
    "uniform:8": "33d91456b64cf645493eefcf95eed9924b252cec52fbd69bed86433a8e0f9fa3",
    "uniform:3": "38151c684a555db03e9252528ec85b9d80e565d8ec7500e566613ce6fa13153c",
    "uniform:1": "d67ed013a638ae25f521e3f28fc8b3f0a57ac56efef2dd3d47a5554bb1fbc7de",
    "random:8": "5db8e8e044b72478a4d3c298dac9d8d08b52d89a4b9505e81c0d4ad4f48b7aa8",
    "random:2": "d1895c35275463b0cffe027966b13460f11d261b4fa39b6ac9db6f3cad151a14",
    "lloyd:8": "c248e673be0611997896e5709ed45fa8db0e3d81a4aea05913f0974e0f1bc17f",
    "lloyd:2": "a4915e57d3172e4f469a2a75d1c716fed9fdb9ae09af19120c81d39b3f167dac",
}
