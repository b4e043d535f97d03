"""What every codec must do: subclass `CodecSuite` in the codec's own test file."""

from __future__ import annotations

import contextlib
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.errors import DlvError
from dlv.pas.coders.codecs import Codec, codec_of

# The suite's methods run in several subclasses, which is what this check warns of.
INHERITED = [HealthCheck.differing_executors]


def examples() -> list[bytes]:
    source = random.Random(1)
    return [
        b"",
        b"\0",
        b"\xff" * 3,
        bytes(100_000),
        bytes(range(256)) * 33,
        source.randbytes(70_001),
        bytes(int(abs(source.gauss(60, 3))) for _ in range(50_000)),  # like exponents
        b"row of weights " * 4_000,
    ]


class CodecSuite:
    """`codec` is what a subclass sets."""

    codec: Codec

    def test_examples(self) -> None:
        for data in examples():
            for given_as in (data, bytearray(data), memoryview(data)):
                encoded = self.codec.encode(given_as)
                assert bytes(self.codec.decode(bytes(encoded), len(data))) == data

    @settings(max_examples=60, deadline=None, suppress_health_check=INHERITED)
    @given(st.binary(max_size=300), st.integers(1, 200))
    def test_any_bytes(self, data: bytes, times: int) -> None:
        whole = data * times
        assert bytes(self.codec.decode(self.codec.encode(whole), len(whole))) == whole

    def test_equal_input_gives_equal_bytes(self) -> None:
        for data in examples():
            assert bytes(self.codec.encode(data)) == bytes(self.codec.encode(bytes(data)))

    def test_the_config_alone_makes_the_decoder(self) -> None:
        data = examples()[5]
        other = codec_of(dict(self.codec.get_config()))
        assert self.codec.get_config()["id"] == self.codec.codec_id == other.codec_id
        assert bytes(other.decode(self.codec.encode(data), len(data))) == data

    def test_another_length_than_declared_is_refused(self) -> None:
        for data in examples():
            encoded = self.codec.encode(data)
            for wrong in (len(data) + 1, len(data) * 2 + 9, 1 << 61):
                with pytest.raises(DlvError):
                    self.codec.decode(encoded, wrong)
            if data:
                with pytest.raises(DlvError):
                    self.codec.decode(encoded, len(data) - 1)

    def test_cut_or_lengthened_bytes_are_refused(self) -> None:
        for data in examples():
            encoded = bytes(self.codec.encode(data))
            for broken in (encoded[:-1], encoded + b"\0", b""):
                if broken != encoded:
                    with pytest.raises(DlvError):
                        self.codec.decode(broken, len(data))

    @settings(max_examples=150, deadline=None, suppress_health_check=INHERITED)
    @given(st.binary(max_size=200), st.integers(0, 1 << 20))
    def test_rubbish_gives_bytes_of_that_length_or_an_error(self, data: bytes, size: int) -> None:
        with contextlib.suppress(DlvError):
            assert len(self.codec.decode(data, size)) == size

    def test_threads(self) -> None:
        def both(data: bytes) -> bool:
            return bytes(self.codec.decode(self.codec.encode(data), len(data))) == data

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(both, examples() * 6))
