"""For the tests of transplant: tiny donors, a tiny target tokenizer, what must come of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import numpy_forward
import pytest
import tiny

from gguftools.header import read_header, read_tensor
from gguftools.verbs import transplant as verb
from gguftools.verbs.convert import convert
from gguftools.verbs.transplant.align import Alignment, align
from gguftools.verbs.transplant.report import TransplantReport
from gguftools.verbs.transplant.special_map import special_map
from gguftools.verbs.transplant.write import folded, low_row
from gguftools.vocab import Vocab

DONORS = {
    "llama": tiny.LLAMA,
    "llama, as qwen2": {**tiny.LLAMA, "head_dim": 16},
    "llama, as qwen2, tied": {**tiny.LLAMA, "head_dim": 16, "tie_word_embeddings": True},
    "llama, tied": {**tiny.LLAMA, "tie_word_embeddings": True},
    "llama, llama3 frequencies": {**tiny.LLAMA, "rope_scaling": tiny.LLAMA3},
    "qwen2": tiny.QWEN2,
    "qwen2, tied": {**tiny.QWEN2, "tie_word_embeddings": True},
    "qwen3": tiny.QWEN3,
}
SPECIALS = ["[BOS]", "<|im_end|>", "<|im_user|>", *(f"<|reserved_token_{i}|>" for i in range(5))]


TEMPLATE = (
    "{% for m in messages %}{{ '<|im_user|>' ~ m.content ~ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_user|>' }}{% endif %}"
)


def write_target(folder: Path) -> Path:
    """A tokenizer with another order, other merges and specials than tiny's: 269 tokens."""
    tiny.write_tokenizer(folder, bos_token="[BOS]", pad_token="[BOS]", chat_template=TEMPLATE)
    doc = json.loads((folder / "tokenizer.json").read_text())
    merges = ["h e", "t he", "Ġ the", "o n", "on e"]
    pieces = [*reversed(tiny.byte_letters()), *(merge.replace(" ", "") for merge in merges)]
    doc["model"] |= {"vocab": {text: i for i, text in enumerate(pieces)}, "merges": merges}
    flags = {**doc["added_tokens"][0]}
    doc["added_tokens"] = [
        {**flags, "id": len(pieces) + i, "content": text} for i, text in enumerate(SPECIALS)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(doc))
    return folder


def write_donor(folder: Path, config: Mapping[str, Any], seed: int = 0) -> tuple[Path, dict[str, Any]]:
    """A checkpoint folder/donor with tiny's tokenizer, and its weights by Hugging Face's names."""
    weights = tiny.weights(config, seed)
    tokenizer = tiny.write_tokenizer(folder / "tokenizer")
    return tiny.write_checkpoint(folder / "donor", config, weights, tokenizer=tokenizer), weights


def donor_gguf(folder: Path, config: Mapping[str, Any] = tiny.LLAMA, outtype: Any = "f32") -> Path:
    """The same as folder/donor.gguf."""
    source, _ = write_donor(folder, config)
    convert(source, folder / "donor.gguf", outtype=outtype)
    return folder / "donor.gguf"


def aligned(target: Path, donor: Path) -> Alignment:
    """What the verb must have used: the alignment of a tokenizer's folder and a GGUF."""
    vocabs = Vocab.from_checkpoint(target), Vocab.from_gguf(donor)
    return align(*vocabs, {one.target: one for one in special_map(*vocabs, {})})


@dataclass(slots=True)
class Seen:
    """What the verb made last: see `watched`."""

    rows: Any = None
    unit: Any = None
    low: Any = None  # low_row of both


def watched(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Keeps the rows and the Unit that each transplant makes."""
    seen, plain = Seen(), verb._made

    def made(*given: Any) -> Any:
        found = plain(*given)
        seen.rows, seen.unit = found[:2]
        seen.low = low_row(*found[:2])
        return found

    monkeypatch.setattr(verb, "_made", made)
    return seen


def grafted(weights: Mapping[str, Any], alignment: Alignment, seen: Seen | None = None) -> dict[str, Any]:
    """The checkpoint's weights with rows for the target: input by the last piece, head by the first.

    `seen`: its bias is folded into the head.
    """
    starts, pieces = alignment.starts, alignment.pieces
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])[pieces[starts[:-1]]]
    if seen is not None:
        head = folded(head, seen.rows.bias, seen.unit, seen.low)
    return {
        **weights,
        "model.embed_tokens.weight": weights["model.embed_tokens.weight"][pieces[starts[1:] - 1]],
        "lm_head.weight": head,
    }


def scores(
    config: Mapping[str, Any],
    weights: Mapping[str, Any],
    alignment: Alignment,
    seen: Seen,
    ids: list[int],
    *,
    fold: bool,
) -> Any:
    """[len(ids), n_tokens] logits as NumPy finds them; the bias beside the head, or in it: `fold`."""
    graft = grafted(weights, alignment, seen if fold else None)
    return numpy_forward.forward(config, graft, ids) + (0 if fold else seen.rows.bias)


def body(path: Path) -> dict[str, tuple[Any, ...]]:
    """Every tensor but the two new matrices: name → type, shape, bytes."""
    header = read_header(path)
    new = ("token_embd.weight", "output.weight", "output.bias")
    return {
        t.name: (t.type, t.shape, bytes(read_tensor(header, t))) for t in header.tensors if t.name not in new
    }


def matrix(path: Path, name: str) -> Any:
    """An F32 tensor, outermost dimension first; None where there is none."""
    header = read_header(path)
    info = next((t for t in header.tensors if t.name == name), None)
    if info is None:
        return None
    assert info.type == 0
    return np.frombuffer(read_tensor(header, info), "<f4").reshape(info.shape[::-1])


def tensors(path: Path) -> list[gguf_files.Tensor]:
    """All tensors of a GGUF, for gguf_files."""
    header = read_header(path)
    return [gguf_files.Tensor(t.name, t.shape, t.type, bytes(read_tensor(header, t))) for t in header.tensors]


def keys(path: Path, **changes: Any) -> dict[str, Any]:
    """All keys of a GGUF for gguf_files, some of them changed (`llama__block_count`), or left out: None."""
    header = read_header(path)
    found: dict[str, Any] = {}
    for key, value in header.keys.items():
        plain = isinstance(value, str | int | float)
        found[key] = gguf_files.Typed(header.types[key], value if plain else list(value))
    for name, value in changes.items():
        found.pop(name.replace("__", "."))
        if value is not None:
            found[name.replace("__", ".")] = value
    return found


def saved(report: TransplantReport, out: Path) -> dict[str, Any]:
    """The report beside the output."""
    found: dict[str, Any] = json.loads(out.with_name(f"{out.name}.transplant.json").read_text("utf-8"))
    assert found == json.loads(json.dumps(report.to_json()))
    return found
