"""The memory that a plan may use: said by a person, or what this machine has free."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError

GPU_RESERVE = 1 << 30  # for the driver and what it allocates beside llama.cpp; llama.cpp's --fit-target, too
MAIN_RESERVE = 2 << 30  # for the system
MAX_GPUS = 16

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

Size = int | str


@dataclass(frozen=True, slots=True)
class Room:
    """One memory. `device`: the name that llama.cpp has for it, "" for main memory."""

    name: str
    device: str
    memory: int
    reserve: int

    @property
    def usable(self) -> int:
        return max(0, self.memory - self.reserve)


@dataclass(frozen=True, slots=True)
class Rooms:
    gpus: tuple[Room, ...]
    main: Room


def size(value: Size) -> int:
    """Bytes. "24G", "24GB" and "24GiB" are 24 × 2^30, as memory is sold. Raises InputError."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise InputError(f"{value!r} is no size of a memory", "it takes a number and a unit", "write 24G")
        unit, number = (match[2] or "").lower(), float(match[1])
        if not unit and 0 < number < 1 << 20:
            raise InputError(f"{value} bytes is hardly meant", "a size takes a unit", f"write {value}G")
        value = round(number * (1 << _UNITS[unit]))
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 60:
        raise InputError(f"{value!r} is no size of a memory", "it takes a number of bytes, or a text as 24G")
    return value


def sizes(value: Size | Sequence[Size]) -> tuple[int, ...]:
    """One size, several, or a text with commas between them."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    found = (value,) if isinstance(value, int) else value
    if len(found) > MAX_GPUS:
        raise InputError(f"{len(found)} GPUs", f"a plan is made for at most {MAX_GPUS}")
    return tuple(size(each) for each in found)


def rooms(vram: Size | Sequence[Size] | None, ram: Size | None) -> Rooms:
    """What was said, else what this machine has: all GPUs with what is free now, main memory likewise."""
    if vram is None:
        gpus = _found()
    else:
        given = enumerate(n for n in sizes(vram) if n)
        gpus = tuple(Room(f"GPU {i}", f"CUDA{i}", n, GPU_RESERVE) for i, n in given)
    if ram is None:
        from ...libllama import hardware

        memory = hardware.free_memory()
        if not memory:
            raise InputError("how much main memory is there?", "this system does not say it", "give --ram")
        return Rooms(gpus, Room("main memory", "", memory, min(MAIN_RESERVE // 4, memory // 10)))
    return Rooms(gpus, Room("main memory", "", size(ram), MAIN_RESERVE))


def _found() -> tuple[Room, ...]:
    from ...libllama.devices import devices

    gpus = [device for device in devices() if device.is_gpu]
    return tuple(Room(g.name, g.name, g.memory_free, GPU_RESERVE // 2) for g in gpus)


def gib(nbytes: float) -> str:
    """As a person reads it: GiB with two digits, of large ones one."""
    value = nbytes / (1 << 30)
    digits = 2 if abs(value) < 100 else 1
    return f"{math.floor(value * 10**digits + 0.5) / 10**digits:,.{digits}f} GiB"
