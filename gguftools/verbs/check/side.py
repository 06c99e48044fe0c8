"""One of the two models that `check` compares, read from a GGUF, a Hugging Face folder or the Hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import FormatError, InputError, NotFound
from ...header import Header, read_header
from ...header.shards import local
from ...vocab import Vocab
from ...vocab.hf_tokenizer import FILES, MODELS, json_object, more_templates

# config.json's model_type -> general.architecture, where the names differ.
_ARCHITECTURES = {
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "kimi_k2": "deepseek2",
    "kimi_k25": "deepseek2",
    "kimi_linear": "kimi-linear",
    "kimi_k3": "kimi-k3",
    "gemma3_text": "gemma3",
    "qwen3_moe": "qwen3moe",
    "qwen2_moe": "qwen2moe",
    "mistral": "llama",
    "mixtral": "llama",
    "gpt_oss": "gpt-oss",
}
_HEADER_BYTES = 32 << 20  # a Kimi-sized header has 7 MB
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN scaling of positions; `beta_fast` None where nothing says it."""

    beta_fast: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """`header` is None for a checkpoint; `n_ctx`, `n_embd`, `n_layer` are 0 where nothing says them."""

    name: str
    vocab: Vocab
    header: Header | None
    architecture: str
    n_ctx: int
    n_embd: int
    n_layer: int
    yarn: Yarn | None = None

    @property
    def template(self) -> str:
        return self.vocab.templates.get("default", "")


def load(source: str | Path | Vocab | Header | Side, *, offline: bool = False) -> Side:
    """A Side of a path, a name or what was read. Raises NotFound, FormatError, InputError, HubError."""
    if isinstance(source, Side):
        return source
    if isinstance(source, Vocab):
        return Side("vocabulary", source, None, "", 0, 0, 0)
    if isinstance(source, Header):
        return from_header(source, str(source.path))
    path = local(source)
    if path.is_dir():
        return _from_folder(path)
    if path.exists():
        return from_header(_read(path), str(source))
    return _from_hub(str(source), offline)


def from_header(header: Header, name: str) -> Side:
    """Refuses what is a GGUF but no language model."""
    _refuse_strangers(header, name)
    arch = header.architecture
    keys = ("context_length", "embedding_length", "block_count")
    values = [header.keys.get(f"{arch}.{key}") for key in keys]
    n_ctx, n_embd, n_layer = (value if isinstance(value, int) else 0 for value in values)
    yarn = None
    if header.get_plain(f"{arch}.rope.scaling.type") == "yarn":
        yarn = Yarn(_number(header.get_plain(f"{arch}.rope.scaling.yarn_beta_fast")))
    return Side(name, Vocab.from_header(header), header, arch, n_ctx, n_embd, n_layer, yarn)


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


def _refuse_strangers(header: Header, name: str) -> None:
    kind = header.get_plain("general.type")
    arch = header.get_plain("general.architecture")
    hint = "give the GGUF of the language model"
    if kind == "mmproj" or arch == "clip":
        raise InputError(
            f"{name}: an mmproj, not a model", "it holds the projector for images or sound", hint
        )
    if kind == "imatrix" or any(info.name.endswith(".in_sum2") for info in header.tensors[:4]):
        raise InputError(f"{name}: an imatrix, not a model", "it holds statistics for quantization", hint)
    if kind == "adapter":
        raise InputError(
            f"{name}: a LoRA adapter, not a model", "it changes a model and cannot run alone", hint
        )


def _read(path: Path) -> Header:
    try:
        return read_header(path)
    except (FormatError, NotFound) as error:
        _refuse_joined(path)
        error.hint = error.hint or "give a GGUF, a Hugging Face folder, or org/repo on the Hub"
        raise


def _refuse_joined(path: Path) -> None:
    """Says so where a second GGUF follows the first shard's data: shards joined with `cat`."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        try:
            header = read_header(file.read(_HEADER_BYTES))
        except FormatError:
            return
        end = second_gguf(file, header)
    if end:
        raise FormatError(
            path,
            end,
            "a second GGUF begins here: the shards were joined with cat",
            "fetch the shards again and give the first one as it is, named -00001-of-…",
        )


def second_gguf(file: Any, header: Header) -> int:
    """Where another GGUF begins behind the last tensor of the first shard, or 0."""
    alignment = header.keys.get("general.alignment", 32)
    end = max((t.offset + t.nbytes for t in header.tensors if t.shard == 0), default=header.data_offset)
    if not isinstance(alignment, int) or alignment < 1:
        return 0
    size = os.fstat(file.fileno()).st_size
    for at in (end, -(-end // alignment) * alignment):
        if at + 4 <= size:
            file.seek(at)
            if file.read(4) == b"GGUF":
                return at
    return 0


def _from_folder(folder: Path) -> Side:
    names = {entry.name for entry in folder.iterdir()}
    has_tokenizer = names & set(MODELS)
    if not has_tokenizer and any(name.endswith(".gguf") for name in names):
        return from_header(_read(folder), str(folder))
    if not has_tokenizer:
        raise _no_model(str(folder), names)
    config = folder / "config.json"
    content = config.read_bytes() if config.is_file() else b"{}"
    return _from_checkpoint(str(folder), Vocab.from_checkpoint(folder), content)


def _no_model(name: str, files: set[str] | Mapping[str, int]) -> InputError:
    if any(file.endswith(_PICKLES) for file in files):
        why = "it has weights in pickle files, which can run code and are never opened, and no tokenizer"
    else:
        why = f"it has no *.gguf and none of {', '.join(MODELS)}"
    return InputError(
        f"{name}: no model in it", why, "give a GGUF, or a folder with the files of its tokenizer"
    )


def _from_checkpoint(name: str, vocab: Vocab, config: bytes) -> Side:
    facts = json_object(f"{name}/config.json", config)
    inner = facts.get("text_config")
    facts = {**facts, **inner} if isinstance(inner, dict) else facts
    kind = str(facts.get("model_type", ""))
    numbers = [facts.get(key) for key in ("max_position_embeddings", "hidden_size", "num_hidden_layers")]
    n_ctx, n_embd, n_layer = (n if isinstance(n, int) else 0 for n in numbers)
    return Side(name, vocab, None, _ARCHITECTURES.get(kind, kind), n_ctx, n_embd, n_layer, _yarn(facts))


def _yarn(config: Mapping[str, Any]) -> Yarn | None:
    """As transformers reads it: beta_fast is 32 where config.json does not say it."""
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(rope, dict) or "yarn" not in (rope.get("rope_type"), rope.get("type")):
        return None
    return Yarn(_number(rope.get("beta_fast", 32)))


def _from_hub(name: str, offline: bool) -> Side:
    from ... import hub
    from ...hub.names import HubRepo

    found = hub.resolve(name, offline=offline)
    if isinstance(found, Path):
        return load(found)
    if not isinstance(found, HubRepo):
        return from_header(hub.gguf_header(found), f"{found.repo}:{found.files[0]}")
    if not set(MODELS) & set(found.files):
        raise _no_model(name, found.files)
    wanted = [*(file for file in FILES if file in found.files), *more_templates(found.files)]
    files = hub.repo_files(found.repo, wanted, revision=found.revision)
    return _from_checkpoint(name, Vocab.from_checkpoint(files), files.get("config.json", b"{}"))
