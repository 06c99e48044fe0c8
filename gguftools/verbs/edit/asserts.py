"""What libllama asserts of an architecture's numbers: where one does not hold, the process ends at load.

As llama_model_base::load_hparams of llama-cpp-python 0.3.36 has it. check judges files as they are made by
converters, which get these right; a person who sets a key may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...header import Header

MAX_LAYERS = 512
MAX_EXPERTS = 1024
_SCALINGS = ("none", "linear", "yarn", "longrope")
_LAYER = re.compile(r"blk\.(\d+)\.")


def broken(header: Header) -> Iterator[tuple[str, str]]:
    """(key, why it ends the process) for each assertion that does not hold."""
    arch = header.get_plain("general.architecture")

    def number(name: str, default: int = 0) -> int:
        value = header.get_plain(f"{arch}.{name}")
        return value if type(value) is int else default

    layers, extra = number("block_count", 1), number("nextn_predict_layers")
    if not 0 < layers <= MAX_LAYERS:
        yield f"{arch}.block_count", f"llama.cpp takes 1 to {MAX_LAYERS} layers"
    if extra > layers:
        yield f"{arch}.nextn_predict_layers", f"there are {layers} layers"
    experts, used = number("expert_count"), number("expert_used_count", -1)
    unsaid = f"{arch}.expert_used_count" not in header.keys
    if not 0 <= experts <= MAX_EXPERTS:
        yield f"{arch}.expert_count", f"llama.cpp takes at most {MAX_EXPERTS:,} experts"
    if used > experts or (experts and (used == 0 or unsaid)):  # a list for each layer is not looked into
        yield f"{arch}.expert_used_count", f"there are {experts} experts"
    groups, chosen = number("expert_group_count"), number("expert_group_used_count")
    if groups and (groups >= experts or experts % groups):
        yield f"{arch}.expert_group_count", f"{experts} experts do not divide into {groups} groups"
    elif groups > 1 and not 0 < chosen < groups:
        yield f"{arch}.expert_group_used_count", f"there are {groups} groups"
    kind = header.get_plain(f"{arch}.rope.scaling.type")
    if kind is not None and kind not in _SCALINGS:
        yield f"{arch}.rope.scaling.type", f"llama.cpp knows {', '.join(_SCALINGS)}"


def layers_of(header: Header) -> int:
    """As many as the tensors have; 0 where there are none."""
    found = [int(match[1]) for info in header.tensors if (match := _LAYER.match(info.name))]
    return max(found, default=-1) + 1
