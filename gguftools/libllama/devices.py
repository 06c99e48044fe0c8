"""Where a model's layers and tensors go: devices and buffer types of the installed llama.cpp."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import InputError, Unsupported
from .compat import GPU_BUILDS, function, library

Layers = int | Literal["all"] | None
KINDS = ("cpu", "gpu", "igpu", "accel", "meta")
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # the tensors that hold a block's experts
MAX_OVERRIDES = 4095  # llama.cpp's own limit, less the end mark

_pointer = ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class Device:
    """name: as in `devices=`; kind: one of KINDS; memory in bytes."""

    name: str
    description: str
    kind: str
    memory_free: int
    memory_total: int
    handle: int

    @property
    def is_gpu(self) -> bool:
        return self.kind in ("gpu", "igpu")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one model goes. gpu_layers -1: all. devices None: llama.cpp's choice, (): the CPU alone."""

    gpu_layers: int
    devices: tuple[Device, ...] | None
    tensor_split: tuple[float, ...]
    overrides: tuple[
        tuple[str, int], ...
    ]  # (regular expression, buffer type's address), the first match wins

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The GPUs that take layers, with the memory that is free now."""
        if not self.gpu_layers:
            return ()
        chosen = None if self.devices is None else {device.handle for device in self.devices}
        return tuple(d for d in devices() if d.is_gpu and (chosen is None or d.handle in chosen))


CPU = Placement(gpu_layers=0, devices=(), tensor_split=(), overrides=())


def devices() -> tuple[Device, ...]:
    """All devices of the installed build, the CPU included."""
    count = function("ggml_backend_dev_count", ctypes.c_size_t)()
    get = function("ggml_backend_dev_get", _pointer, ctypes.c_size_t)
    return tuple(_describe(get(i)) for i in range(count))


def _describe(handle: int) -> Device:
    def text(name: str) -> str:
        found: bytes = function(name, ctypes.c_char_p, _pointer)(handle) or b""
        return found.decode("utf-8", "replace")

    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    size_p = ctypes.POINTER(ctypes.c_size_t)
    function("ggml_backend_dev_memory", None, _pointer, size_p, size_p)(handle, free, total)
    kind = function("ggml_backend_dev_type", ctypes.c_int, _pointer)(handle)
    name, description = text("ggml_backend_dev_name"), text("ggml_backend_dev_description")
    kind_name = KINDS[kind] if 0 <= kind < len(KINDS) else "accel"
    return Device(name, description, kind_name, free.value, total.value, handle)


def buffer_types() -> dict[str, int]:
    """Buffer types by name, as `override_tensor` takes them: "CPU", "CUDA0", …"""
    own = function("ggml_backend_dev_buffer_type", _pointer, _pointer)
    name = function("ggml_backend_buft_name", ctypes.c_char_p, _pointer)
    found = [own(device.handle) for device in devices()]
    found.append(function("ggml_backend_cpu_buffer_type", _pointer)())
    return {name(buffer).decode(): buffer for buffer in found if buffer}


def placement(
    layers: Layers,
    names: Sequence[str] | None = None,
    tensor_split: Sequence[float] | None = None,
    n_cpu_moe: Layers = 0,
    override_tensor: Mapping[str, str] | Sequence[str] = (),
) -> Placement:
    """Checks what was asked for against what the build has. Raises Unsupported and InputError."""
    chosen = None if names is None else tuple(_named(name) for name in names)
    has_gpu = any(device.is_gpu for device in (devices() if chosen is None else chosen))
    count = _layers(layers, has_gpu)
    if count and not has_gpu:
        raise Unsupported("no GPU takes the layers that were asked for", _no_gpu(chosen), GPU_BUILDS)
    split = tuple(float(share) for share in tensor_split or ())
    limit = library().llama_max_devices()
    if len(split) > limit or any(share < 0 for share in split):
        raise InputError("tensor_split is wrong", f"it takes at most {limit} shares of at least 0")
    overrides = (*_overrides(override_tensor), *_cpu_moe(n_cpu_moe))
    if len(overrides) > MAX_OVERRIDES:
        raise InputError("too many tensor overrides", f"llama.cpp takes at most {MAX_OVERRIDES}")
    return Placement(count, chosen, split, overrides)


def _layers(layers: Layers, has_gpu: bool) -> int:
    if layers is None:
        return -1 if has_gpu else 0
    if layers == "all":
        return -1
    if not isinstance(layers, int) or layers < 0:
        raise InputError(f"gpu_layers is {layers!r}", 'it takes a number from 0 or "all"')
    return layers


def _no_gpu(chosen: tuple[Device, ...] | None) -> str:
    if chosen is not None:
        return f"devices names {', '.join(device.name for device in chosen) or 'none'}"
    if library().llama_supports_gpu_offload():
        return "this build of llama-cpp-python has a GPU backend, but it finds no device"
    return "this build of llama-cpp-python has no GPU backend"


def _named(name: str) -> Device:
    found = devices()
    for device in found:
        if device.name.lower() == name.lower():
            return device
    names = ", ".join(device.name for device in found)
    raise Unsupported(
        f"there is no device {name}", f"this build of llama-cpp-python has: {names}", GPU_BUILDS
    )


def _overrides(given: Mapping[str, str] | Sequence[str]) -> list[tuple[str, int]]:
    if isinstance(given, str):
        given = given.split(",")
    pairs = (
        list(given.items())
        if isinstance(given, Mapping)
        else [tuple(item.rpartition("=")[::2]) for item in given]
    )
    known = buffer_types() if pairs else {}
    for pattern, buffer in pairs:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InputError(f"override_tensor: {pattern!r} is no regular expression", str(error)) from error
        if not pattern or "\0" in pattern:
            raise InputError(f"override_tensor: {pattern}={buffer}", "it takes REGEX=BUFFER")
        if buffer not in known:
            raise Unsupported(
                f"override_tensor: there is no buffer type {buffer!r}",
                f"this build of llama-cpp-python has: {', '.join(known)}",
                GPU_BUILDS,
            )
    return [(pattern, known[buffer]) for pattern, buffer in pairs]


def _cpu_moe(count: Layers) -> list[tuple[str, int]]:
    if not count:
        return []
    cpu = function("ggml_backend_cpu_buffer_type", _pointer)()
    if count == "all":
        return [(EXPERTS, cpu)]
    if not isinstance(count, int) or count < 0:
        raise InputError(f"n_cpu_moe is {count!r}", 'it takes a number from 0 or "all"')
    return [(rf"blk\.{i}{EXPERTS}", cpu) for i in range(count)]


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer", _pointer))


def apply(place: Placement, params: Any) -> list[Any]:
    """Writes a placement into a llama_model_params; returns the arrays that must outlive the load."""
    params.n_gpu_layers = place.gpu_layers
    kept: list[Any] = []
    if place.devices is not None:
        handles = [device.handle for device in place.devices if device.kind != "cpu"]
        kept.append((_pointer * (len(handles) + 1))(*handles, None))
        params.devices = ctypes.cast(kept[-1], _pointer)
    if place.tensor_split:
        kept.append((ctypes.c_float * library().llama_max_devices())(*place.tensor_split))
        params.tensor_split = ctypes.cast(kept[-1], ctypes.POINTER(ctypes.c_float))
    if place.overrides:
        rows = [_Override(pattern.encode(), buffer) for pattern, buffer in place.overrides]
        kept.append((_Override * (len(rows) + 1))(*rows, _Override(None, None)))
        params.tensor_buft_overrides = ctypes.cast(kept[-1], _pointer)
    return kept
