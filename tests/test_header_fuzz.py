"""read_header on broken bytes: FormatError or a header, never a crash, a hang or memory beyond the cap."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import pytest
from gguf_files import I32, U16, Tensor, Typed, gguf_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from gguftools.errors import FormatError
from gguftools.header import Header, StringArray, read_header, read_tensor
from gguftools.vocab import Vocab

SMALL = gguf_bytes(
    {
        "general.architecture": "llama",
        "general.alignment": 32,
        "x.float": 1.5,
        "x.yes": True,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a", "b", "Ġa", "<|im_end|>"],
        "tokenizer.ggml.token_type": Typed(I32, [1, 1, 1, 3]),
        "tokenizer.ggml.merges": ["Ġ a"],
        "tokenizer.ggml.eos_token_id": 3,
        "x.shorts": Typed(U16, [1, 2, 3]),
    },
    [Tensor("token_embd.weight", (32, 4), 8), Tensor("output_norm.weight", (32,), 0)],
)
CAP = 1 << 20  # far above what a header of SMALL's size needs, far below what a believed count would take


def _use(header: Header) -> None:
    """Touches everything that is lazy."""
    for value in header.keys.values():
        if isinstance(value, StringArray):
            assert len(list(value)) == len(value)
    for tensor in header.tensors:
        assert 0 <= tensor.offset <= tensor.offset + tensor.nbytes
    try:
        vocab = Vocab.from_header(header)
    except FormatError:
        return
    vocab.eog()
    assert len(vocab.tokens[:]) == vocab.n_tokens
    assert vocab.digest_ordinary


def _survives(data: bytes) -> bool:
    """Whether the bytes parse; anything but FormatError escapes."""
    error = None
    try:
        header = read_header(data)
    except FormatError as caught:
        error = caught
    if error is None:
        _use(header)
        return True
    assert 0 <= error.offset <= len(data)
    return False


def test_every_prefix_is_refused_or_read(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    whole = read_header(SMALL)
    end = max(t.offset + t.nbytes for t in whole.tensors)
    for length in range(len(SMALL) + 1):
        path.write_bytes(SMALL[:length])
        if length < end:
            with pytest.raises(FormatError):
                read_header(path)
        else:
            header = read_header(path)
            assert [bytes(read_tensor(header, t)) for t in header.tensors]


def test_twenty_thousand_mutations_never_crash_or_use_much_memory() -> None:
    rng = random.Random(1)
    special = [b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 2**63), struct.pack("<Q", 2**31), b"\x7f" + bytes(7)]
    parsed = 0
    tracemalloc.start()
    for _ in range(20_000):
        data = bytearray(SMALL)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            kind, at = rng.randrange(5), rng.randrange(len(data))
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at] = rng.randrange(256)
            elif kind == 2:
                data[at : at + 8] = rng.choice(special)
            elif kind == 3:
                del data[at : at + rng.randrange(1, 9)]
            else:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
        parsed += _survives(bytes(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < CAP
    assert 1000 < parsed < 19_000  # both ways are taken


def test_a_claim_of_many_elements_takes_no_memory() -> None:
    for count in (2**16, 2**24, 2**32, 2**61, 2**63, 2**64 - 1):
        for kind in range(14):
            array = struct.pack("<IQ", kind, count)
            data = gguf_bytes([("a", Typed(9, array))]) + bytes(64)
            tracemalloc.start()
            assert not _survives(data)
            assert tracemalloc.get_traced_memory()[1] < CAP
            tracemalloc.stop()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_after_the_magic_are_refused_or_read(tail: bytes) -> None:
    _survives(b"GGUF" + tail)
    _survives(b"GGUF\3\0\0\0" + bytes(8) + b"\2" + bytes(7) + tail)


_VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=20),
    st.lists(st.binary(max_size=12), min_size=1, max_size=5),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5).map(lambda values: Typed(I32, values)),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=12), _VALUES, max_size=8), st.sampled_from([2, 3]))
def test_what_is_written_is_read(keys: dict[str, object], version: int) -> None:
    keys.pop("general.alignment", None)
    header = read_header(gguf_bytes(keys, version=version))
    assert list(header.keys) == list(keys)
    for key, value in keys.items():
        read = header.keys[key]
        if isinstance(value, Typed):
            assert read.tolist() == value.value  # type: ignore[union-attr]
        else:
            assert (list(read) if isinstance(value, list) else read) == value  # type: ignore[arg-type]
