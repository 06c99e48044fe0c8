"""The tiny checkpoints of the parity test: a reference implementation's config and shapes, numbers by rule.

tests/parity/make.py has asked transformers for the names and shapes and llama.cpp's converter for its GGUF;
expected.json holds the answers. Nothing here needs either.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tiny
from numpy.typing import NDArray
from parity_cases import QUANTIZED, Case
from tokenizer_files import spm_doc
from vocabularies import make

from gguftools.header import Header, StringArray, read_tensor
from gguftools.header.ggml_types import TENSOR_TYPES, ValueType
from gguftools.vocab import pre_tokenizers
from gguftools.vocab.sentencepiece import model_bytes

EXPECTED = Path(__file__).resolve().parent / "parity" / "expected.json"


def write(folder: Path, case: Case, asked: Mapping[str, Any]) -> Path:
    """The checkpoint of a case: `asked` has config.json and the shapes of the reference implementation."""
    tensors: dict[str, NDArray[Any]] = {}
    for name, shape in asked["shapes"].items():
        linear = name.endswith("_proj.weight")
        if case.packed == "fp8" and linear:
            tensors |= _fp8(name, *shape)
        elif case.packed == "int4" and linear and ".experts." in name:
            tensors |= _int4(name, *shape)
        else:
            tensors[name] = values(name, tuple(shape))
    config = asked["config"]
    if case.packed:
        config = {**config, "quantization_config": QUANTIZED[case.packed]}
    tiny.write_checkpoint(folder, config, tensors)
    if case.pre:
        _write_byte_level(folder, case.pre)
    elif case.model_type.startswith("gemma"):
        write_gemma(folder)
    else:
        (folder / "tokenizer.model").write_bytes(
            spm_model({"<unk>": 2, "<s>": 3, "</s>": 3}, space=True, bos=1, eos=2)
        )
        settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
        _write_json(folder / "tokenizer_config.json", {**settings, "tokenizer_class": "LlamaTokenizer"})
    return folder


def values(name: str, shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """BF16 numbers between -1 and 1 over the square root of the width, the same everywhere and always."""
    numbers = (_bits(name, 24, shape).astype(np.float32) / np.float32(1 << 23)) - 1
    return _bf16(numbers * np.float32(0.5 if len(shape) == 1 else shape[-1] ** -0.5))


def _bits(name: str, n: int, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Random numbers of n bits."""
    raw = np.random.PCG64(zlib.crc32(name.encode())).random_raw(int(np.prod(shape)))
    return np.asarray(raw >> np.uint64(64 - n), np.uint64).reshape(shape)


def _bf16(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (numbers.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def _scales(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Between 2^-11 and 2^-10."""
    return (1 + _bits(name, 23, shape).astype(np.float32) / np.float32(1 << 23)) * np.float32(2**-11)


def _fp8(name: str, rows: int, width: int) -> dict[str, NDArray[Any]]:
    """Any byte but the two that are no number, and a scale for each block of 128 by 128."""
    codes = _bits(name, 8, (rows, width)).astype(np.uint8)
    codes[codes & 127 == 127] ^= 1
    return {
        name: codes,
        f"{name}_scale_inv": _scales(name + "_scale_inv", (-(-rows // 128), -(-width // 128))),
    }


def _int4(name: str, rows: int, width: int) -> dict[str, NDArray[Any]]:
    """Eight numbers of four bits in each word, a BF16 scale for 32 of them."""
    words = _bits(name, 32, (rows, width // 8)).astype(np.uint32).view(np.int32)
    scales = _bf16(_scales(name + "_scale", (rows, width // 32)) * np.float32(16))
    shape = np.array([rows, width], np.int64)
    return {f"{name}_packed": words, f"{name}_scale": scales, f"{name}_shape": shape}


def _write_byte_level(folder: Path, pre: str) -> None:
    tiny.write_tokenizer(folder, model_max_length=256, chat_template="{{ messages[0].content }}")
    path = folder / "tokenizer.json"
    doc = json.loads(path.read_text())
    known = pre_tokenizers.to_json(pre)
    assert known is not None
    doc["pre_tokenizer"], doc["normalizer"], doc["model"]["ignore_merges"] = known
    _write_json(path, doc)


GEMMA = {
    "<pad>": 3,
    "<eos>": 3,
    "<bos>": 3,
    "<unk>": 2,
    "<mask>": 4,
    "[multimodal]": 4,
    "<unused0>": 4,
    "<start_of_turn>": 4,
    "<end_of_turn>": 4,
    "\n": 4,
    "\n\n": 4,
    "▁▁": 4,
    "▁▁▁▁": 4,
}  # the first pieces in Gemma's order, with sentencepiece's types
_CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<image_soft_token>")


def spm_model(names: Mapping[str, int], *, space: bool, **ids: int) -> bytes:
    """A tokenizer.model: names by type, all bytes, then words by rank; `space`: one before a text."""
    words = [text for text in spm_doc()[1] if not text.startswith("<")]
    kinds = {**names, **{f"<0x{byte:02X}>": 6 for byte in range(256)}, **dict.fromkeys(words, 1)}
    vocab = make(
        "llama",
        [(text.encode(), kind) for text, kind in kinds.items()],
        scores=[min(0.0, float(len(kinds) - len(words) - i)) for i in range(len(kinds))],
        special=ids,
    )
    return model_bytes(replace(vocab, add_space_prefix=space))


def write_gemma(folder: Path) -> None:
    """Its names are also in tokenizer_config.json, with one more behind the last piece; rows remain."""
    (folder / "tokenizer.model").write_bytes(spm_model(GEMMA, space=False, pad=0, eos=1, bos=2))
    names = [*enumerate(GEMMA), (len(GEMMA) + 263, "<image_soft_token>")]
    settings = {
        "added_tokens_decoder": {str(i): {"content": text, "special": text in _CONTROL} for i, text in names},
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": False,
        "chat_template": "{{ bos_token }}{{ messages[0].content }}<end_of_turn>\n",
        "tokenizer_class": "GemmaTokenizer",
    }
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / "tokenizer.json", _gemma_json(settings["added_tokens_decoder"]))
    _write_json(folder / "generation_config.json", {"eos_token_id": [1, 8], "top_k": 64, "top_p": 0.95})


def _gemma_json(added: Mapping[str, Any]) -> dict[str, Any]:
    """The same vocabulary as a tokenizer.json."""
    texts = [*GEMMA, *(f"<0x{byte:02X}>" for byte in range(256))]
    texts += [text for text in spm_doc()[1] if not text.startswith("<")]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    first = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": int(i), **token, **flags} for i, token in added.items()],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": split,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, text],
            "pair": [first, text, first, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
        },
        "decoder": {"type": "ByteFallback"},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "byte_fallback": True,
            "vocab": {text: i for i, text in enumerate(texts)},
            "merges": [["▁", "t"], ["h", "e"], ["▁t", "he"]],
        },
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def digest(header: Header) -> dict[str, Any]:
    """A GGUF in short: keys by type and value (arrays by digest), tensors by type, shape and digest."""
    return {
        "keys": {name: f"{ValueType(header.types[name]).name} {text}" for name, text in _keys(header)},
        "tensors": {
            info.name: f"{TENSOR_TYPES[info.type].name} {list(info.shape)} {_sha(read_tensor(header, info))}"
            for info in header.tensors
        },
    }


def _keys(header: Header) -> Iterator[tuple[str, str]]:
    for name, value in header.keys.items():
        if isinstance(value, StringArray):
            yield name, f"{len(value)} of {_sha(value.raw)}"
        elif isinstance(value, np.ndarray):
            yield name, f"{value.size} of {_sha(value.tobytes())}"
        else:
            yield name, json.dumps(value)


def _sha(data: Any) -> str:
    return hashlib.sha256(bytes(data)).hexdigest()
