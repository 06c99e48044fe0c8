"""Slots: tensors of several names are stacked, changes stand between the two worlds, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from numpy.typing import NDArray

from gguftools.arch.slot import Slot
from gguftools.checkpoint import Checkpoint, floats
from gguftools.errors import InputError, Unsupported
from gguftools.verbs.convert import pieces, plan


@dataclass(frozen=True, slots=True)
class FirstOfTwo:
    """Of each two rows the first, turned around."""

    exact: bool = True
    unit: int = 2

    def shape_of_source(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (2 * shape[0], *shape[1:])

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        assert rows.dtype == (np.uint16 if self.exact else np.float32)
        return rows[::2, ::-1]


ROWS = np.random.default_rng(0).standard_normal((12, 64)).astype(np.float32)


def write(folder: Path, **tensors: NDArray[Any]) -> Checkpoint:
    return Checkpoint.open(tiny.write_checkpoint(folder / "m", tiny.LLAMA, tensors))


def made(checkpoint: Checkpoint, slot: Slot, outtype: Any = "auto") -> tuple[int, tuple[int, ...], bytes]:
    """The type, shape and bytes that a slot becomes."""
    (job,) = plan.jobs(checkpoint, [slot], outtype)
    told: list[float] = []
    data = b"".join(np.ascontiguousarray(piece).tobytes() for piece in pieces.of(job, told.append))
    assert len(data) == job.out.nbytes
    assert told == sorted(told)
    assert told[-1] == 1.0
    return job.out.type, job.out.shape, data


@pytest.mark.parametrize("chunk", [1, 300, 1 << 20])
def test_equal_tensors_are_stacked_in_the_order_of_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(pieces, "CHUNK", chunk)
    checkpoint = write(tmp_path, b=ROWS[6:], a=ROWS[:6])
    kind, shape, data = made(checkpoint, Slot("x_exps.weight", ("a", "b"), (2, 6, 64)))
    assert (kind, shape) == (floats.F32, (64, 6, 2))
    assert data == ROWS.tobytes()


@pytest.mark.parametrize("chunk", [1, 300, 1 << 20])
@pytest.mark.parametrize("exact", [True, False])
def test_a_change_is_given_whole_units_and_bits_only_where_it_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, exact: bool
) -> None:
    monkeypatch.setattr(pieces, "CHUNK", chunk)
    bits = tiny.bf16(ROWS)
    checkpoint = write(tmp_path, a=bits)
    slot = Slot("x.weight", "a", (6, 64), change=FirstOfTwo(exact))
    assert made(checkpoint, slot) == (floats.BF16, (64, 6), bits[::2, ::-1].tobytes())


def test_a_tensor_in_two_slots_is_read_for_each(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, a=ROWS)
    slots = [Slot("x.weight", "a", (12, 64)), Slot("y.weight", "a", (6, 64), change=FirstOfTwo())]
    assert [job.sources[0].name for job in plan.jobs(checkpoint, slots, "auto")] == ["a", "a"]


def test_a_kind_is_kept_whatever_the_outtype(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, a=tiny.bf16(ROWS))
    slot = Slot("ffn_gate_inp.weight", "a", (12, 64), kind=floats.F32)
    wide = floats.to_f32(tiny.bf16(ROWS), floats.BF16)
    assert made(checkpoint, slot, "q8_0") == (floats.F32, (64, 12), wide.tobytes())


def test_whole_numbers_pass_where_they_are_meant_and_nowhere_else(tmp_path: Path) -> None:
    numbers = np.array([0, -7, 1 << 40])
    checkpoint = write(tmp_path, d2t=numbers)
    assert made(checkpoint, Slot("d2t", "d2t", (3,), kind=floats.I64)) == (27, (3,), numbers.tobytes())
    with pytest.raises(Unsupported, match="d2t holds whole numbers"):
        plan.jobs(checkpoint, [Slot("x", "d2t", (3,))], "auto")


def test_one_expert_of_another_shape_or_missing_is_named(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, a=ROWS[:6], b=ROWS[:5])
    with pytest.raises(InputError, match=r"b has the shape \[5, 64\]"):
        plan.jobs(checkpoint, [Slot("x", ("a", "b"), (2, 6, 64))], "auto")
    with pytest.raises(InputError, match="lacks c"):
        plan.jobs(checkpoint, [Slot("x", ("a", "b", "c"), (3, 6, 64))], "auto")
