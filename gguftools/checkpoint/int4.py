"""compressed-tensors' pack-quantized weights, 4 bits and a scale for 32, as Kimi-K2-Thinking comes.

A number is (n - 8) · scale with n from 0 to 15, and so it is in llama.cpp's Q4_0: both keep n in four bits,
in another order, and a scale for the same 32 numbers. Q4_0's scale is an F16 though. A BF16 scale, 8 bits at
any exponent, is an F16 too from 2^-17 up to 65,280, and below where its last bit is 2^-24 or more. Where all
scales are, nothing is lost: the product of 4 and 11 bits at most is exact in float32 on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, Unsupported
from . import floats, safetensors
from .safetensors import Entry

GROUP = 32
PACKED, SCALE, SHAPE = "_packed", "_scale", "_shape"
_SCALES = {"F32": floats.F32, "F16": floats.F16, "BF16": floats.BF16}
_CHUNK = 1 << 22  # scales looked at together
_BLOCK = np.dtype([("scale", "<f2"), ("numbers", "<u8", 2)])
_LOW, _FOUR = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(4)  # the lower half of each byte
_LEAST, _MOST = 110 << 7, 143 << 7  # BF16's bits of 2^-17 and of 2^16, without the sign
_SOURCE = "use the checkpoint that it was made from; llama.cpp's convert_hf_to_gguf.py knows more"


@dataclass(frozen=True, slots=True)
class Int4:
    """One matrix. `kind` F32, or Q4_0: its own bits, given only where `exact` or `rounded` allow it."""

    packed: Entry
    scale: Entry
    kind: int = floats.F32
    rounded: bool = False

    @property
    def name(self) -> str:
        return self.packed.name.removesuffix(PACKED)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.packed.shape[0], self.packed.shape[1] * 8

    @property
    def auto(self) -> int:
        """Q4_0 where it is exact, else BF16: what compressed-tensors itself widens to."""
        return floats.Q4_0 if self.kind == floats.Q4_0 else floats.BF16

    def settled(self, outtype: str) -> Int4:
        """This matrix as it is read for an outtype. With auto all scales are looked at."""
        if outtype == "q4_0":
            return replace(self, kind=floats.Q4_0, rounded=True)
        return replace(self, kind=floats.Q4_0) if outtype == "auto" and self.exact() else self

    def exact(self) -> bool:
        """Whether F16 holds every scale; taken for granted, and checked by `read`, until the file is here."""
        if not self.scale.path.is_file():
            return True
        n_rows, per_row = self.scale.shape
        step = max(_CHUNK // per_row, 1)
        return all(self._exact(at, min(step, n_rows - at)) for at in range(0, n_rows, step))

    def _exact(self, first_row: int, n_rows: int) -> bool:
        stored = self._stored(first_row, n_rows)
        if self.scale.dtype == "BF16":
            past = (stored & 0x7FFF) - np.uint16(_LEAST)  # wraps round below
            if (past < _MOST - _LEAST).all():
                return True
        return bool(fits_f16(self._scales(first_row, n_rows)).all())

    def read(self, first_row: int, n_rows: int) -> NDArray[Any]:
        scales = self._scales(first_row, n_rows)
        width = self.shape[1] // 2
        raw = safetensors.read_bytes(self.packed, first_row * width, n_rows * width)
        groups = raw.reshape(n_rows, -1, GROUP // 2)
        if self.kind == floats.Q4_0:
            return _blocks(groups, self._f16(scales)).reshape(n_rows, -1)
        return _wide(groups, scales).reshape(n_rows, -1)

    def _stored(self, first_row: int, n_rows: int) -> NDArray[Any]:
        dtype = floats.PLAIN[_SCALES[self.scale.dtype]]
        stride = self.scale.shape[1] * dtype.itemsize
        raw = safetensors.read_bytes(self.scale, first_row * stride, n_rows * stride)
        return raw.view(dtype).reshape(n_rows, -1)

    def _scales(self, first_row: int, n_rows: int) -> NDArray[np.float32]:
        kind, rows = _SCALES[self.scale.dtype], self._stored(first_row, n_rows)
        floats.check_finite(rows, kind, self.scale.name)
        return floats.to_f32(rows, kind)

    def _f16(self, scales: NDArray[np.float32]) -> NDArray[np.float16]:
        if not self.rounded and not fits_f16(scales).all():
            raise InputError(
                f"{self.scale.name} holds a scale that Q4_0 cannot keep",
                "this was not known before the file was here",
                "run it again, now it is: this tensor becomes BF16; or use --outtype q4_0",
            )
        if (np.abs(scales) >= 65520.0).any():
            raise InputError(
                f"{self.scale.name} holds a number too large for Q4_0",
                "it would become infinite",
                "use --outtype f32, or bf16",
            )
        return scales.astype("<f2")


def fits_f16(scales: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which of finite numbers an F16 holds without rounding."""
    fits: NDArray[np.bool_] = np.abs(scales) <= 65504.0
    fits &= np.where(fits, scales, 0).astype(np.float16).astype(np.float32) == scales
    return fits


def _blocks(groups: NDArray[np.uint8], scales: NDArray[np.float16]) -> NDArray[np.uint8]:
    """Q4_0's 18 bytes for each group: the scale, then numbers i and i + 16 in byte i.

    In the checkpoint numbers 2i and 2i + 1 share byte i; the lower half of a byte comes first in both.
    """
    words = groups.view("<u8")
    first, second = words[..., 0], words[..., 1]
    both = np.empty((*first.shape, 8, 2), np.uint8)
    both[..., 0] = (first & _LOW | second << _FOUR & ~_LOW).view(np.uint8).reshape(*first.shape, 8)
    both[..., 1] = (first >> _FOUR & _LOW | second & ~_LOW).view(np.uint8).reshape(*first.shape, 8)
    out = np.empty(first.shape, _BLOCK)
    out["scale"] = scales
    out["numbers"] = both.reshape(*first.shape, 16).view("<u8")
    return out.view(np.uint8)


def _wide(groups: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    out = np.empty((*groups.shape[:2], GROUP), np.float32)
    out[..., 0::2] = groups & 15
    out[..., 1::2] = groups >> 4
    out -= 8
    out *= scales[..., None]
    return out


def check_config(quantization: Mapping[str, Any]) -> None:
    """Raises Unsupported for what is no symmetric int4 with a scale for 32 numbers."""
    form, found = quantization.get("format"), quantization.get("config_groups")
    schemes = list(found.values()) if isinstance(found, Mapping) else []
    if form != "pack-quantized" or len(schemes) != 1 or not isinstance(schemes[0], Mapping):
        raise _other(f"{form}, {len(schemes)} groups of settings")
    weights = schemes[0].get("weights")
    weights = weights if isinstance(weights, Mapping) else {}
    wanted = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True}
    for name, value in wanted.items():
        if weights.get(name) != value:
            raise _other(f"{form}, {name} {weights.get(name)}")
    if weights.get("actorder") not in (None, "weight", "static"):
        raise _other(f"{form}, actorder {weights['actorder']}")


def _other(what: str) -> Unsupported:
    return Unsupported(
        f"the checkpoint is quantized (compressed-tensors, {what})",
        f"compressed-tensors are converted as symmetric int4 with a scale for {GROUP} numbers",
        _SOURCE,
    )


def find(tensors: Mapping[str, Entry]) -> dict[str, Int4]:
    """A checkpoint's packed matrices by the names that they have unpacked. Raises InputError, Unsupported."""
    found = {}
    for name, entry in tensors.items():
        if name.endswith(PACKED):
            base = name.removesuffix(PACKED)
            found[base] = _whole(base, entry, tensors)
    return found


def parts(base: str) -> tuple[str, ...]:
    """The tensors that one packed matrix consists of."""
    return base + PACKED, base + SCALE, base + SHAPE


def _whole(base: str, packed: Entry, tensors: Mapping[str, Entry]) -> Int4:
    for more in ("_zero_point", "_g_idx"):
        if base + more in tensors:
            raise _other(f"with {base + more}")
    missing = [name for name in parts(base) if name not in tensors]
    if missing or base in tensors:
        raise InputError(
            f"{packed.name} has no {missing[0]}" if missing else f"{base} is there both packed and unpacked",
            "a packed matrix is three tensors: packed, scale, shape",
            "download the checkpoint again",
        )
    _check(packed, tensors[base + SCALE], tensors[base + SHAPE])
    return Int4(packed, tensors[base + SCALE])


def _check(packed: Entry, scale: Entry, shape: Entry) -> None:
    """Types and shapes; the numbers in `_shape` too where the file is here."""
    types = {packed.name: (packed, ("I32",)), scale.name: (scale, tuple(_SCALES))}
    types[shape.name] = (shape, ("I32", "I64"))
    for name, (entry, known) in types.items():
        if entry.dtype not in known:
            raise Unsupported(f"{name} is {entry.dtype}", f"it is read as {' or '.join(known)}", _SOURCE)
    rows, words = packed.shape if len(packed.shape) == 2 else (0, 0)
    if not rows or words * 8 % GROUP:
        raise Unsupported(
            f"{packed.name} has the shape {list(packed.shape)}",
            f"rows of whole groups of {GROUP} numbers can be converted, eight in each word",
            _SOURCE,
        )
    wanted = {scale.name: (scale.shape, (rows, words * 8 // GROUP)), shape.name: (shape.shape, (2,))}
    if shape.path.is_file() and shape.shape == (2,):
        said = safetensors.read_bytes(shape, 0, shape.nbytes).view("<i4" if shape.dtype == "I32" else "<i8")
        wanted[f"{shape.name}'s contents"] = (tuple(said.tolist()), (rows, words * 8))
    for name, (found, right) in wanted.items():
        if found != right:
            raise InputError(
                f"{name}: {list(found)} where {list(right)} is right",
                f"{packed.name} has the shape {list(packed.shape)}",
                "download the checkpoint again",
            )
