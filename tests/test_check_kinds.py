"""check, export: keys of another kind than expected give a report or one message, never a crash."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from gguf_files import BOOL, F32, F64, I32, I64, STR, U32, Tensor, Typed, write_gguf

from gguftools.errors import GGUFToolsError
from gguftools.header import read_header, read_tensor
from gguftools.verbs.check import check
from gguftools.verbs.convert import convert
from gguftools.verbs.export import export

NAN, INF = float("nan"), float("inf")
VALUES = [
    *(Typed(I32, [1, 2]), Typed(I32, []), Typed(STR, ["a", "b"]), Typed(STR, []), Typed(F32, [1.5, NAN])),
    *(Typed(STR, "yarn"), Typed(STR, ""), Typed(F32, NAN), Typed(F32, INF), Typed(F64, 1e300)),
    *(Typed(U32, 0), Typed(U32, 2**32 - 1), Typed(I64, -1), Typed(BOOL, True), Typed(BOOL, [True, False])),
    *(Typed(F32, [NAN] * 300), Typed(I64, [2**62] * 300)),
]
MORE = [
    *("general.type", "general.name", "general.alignment", "general.sampling.temp", "split.count"),
    *("split.tensors.count", "{}.expert_count", "{}.expert_gating_func", "{}.rope.scaling.type"),
    *("{}.attention.key_length_mla", "{}.rope.scaling.yarn_beta_fast", "{}.rope.scaling.attn_factor"),
    *("{}.target_layers", "{}.target_hidden_size", "{}.rope.scale_linear", "{}.rope.dimension_count"),
    *("tokenizer.chat_template", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.scores"),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[Tensor]]:
    """A sound GGUF with YaRN, its keys and its tensors."""
    folder = tmp_path_factory.mktemp("sound")
    template = "{% for m in messages %}{{ m }}<|im_start|>{% endfor %}"
    tokenizer = tiny.write_tokenizer(folder / "tokenizer", chat_template=template)
    config = tiny.KINDS["qwen2, yarn with its own attention factor"]
    source = tiny.write_checkpoint(folder / "hf", config, tiny.weights(config), tokenizer=tokenizer)
    path = convert(source, folder / "m.gguf").path
    header = read_header(path)
    keys = {}
    for key, value in header.keys.items():
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        keys[key] = Typed(header.types[key], plain if isinstance(plain, str | int | float) else list(plain))
    tensors = [Tensor(t.name, t.shape, t.type, bytes(read_tensor(header, t))) for t in header.tensors]
    return path, keys, tensors


@pytest.mark.parametrize("arch", ["qwen2", "deepseek2", "eagle3"])
def test_a_key_of_any_kind_is_judged_or_refused(
    arch: str, sound: tuple[Path, dict[str, Any], list[Tensor]], tmp_path: Path
) -> None:
    target, keys, tensors = sound
    keys = {key.replace("qwen2.", arch + "."): value for key, value in keys.items()}
    keys["general.architecture"] = Typed(STR, arch)
    rng = random.Random(arch)
    for key in [*keys, *(name.format(arch) for name in MORE)]:
        for value in rng.sample(VALUES, 5):
            path = write_gguf(tmp_path / "m.gguf", {**keys, key: value}, tensors)
            for pair in ((path,), (target, path), (path, target)):
                with contextlib.suppress(GGUFToolsError), np.errstate(all="raise"):
                    check(*pair)
            with contextlib.suppress(GGUFToolsError):
                export(path, tmp_path / "out", force=True)
            assert not list(tmp_path.glob(".*"))
