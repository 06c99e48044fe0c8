"""Sides read from a Hugging Face folder or from the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import hub
from ...errors import InputError
from ...hub.names import HubRepo
from ...vocab import Vocab
from ...vocab.hf_tokenizer import FILES, MODELS, Folder, json_object, more_templates
from .side import Side, Yarn, from_header, load, number, read

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
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def from_folder(folder: Path) -> Side:
    names = {entry.name for entry in folder.iterdir()}
    has_tokenizer = names & set(MODELS)
    if not has_tokenizer and any(name.endswith(".gguf") for name in names):
        return from_header(read(folder), str(folder))
    if not has_tokenizer:
        raise _no_model(str(folder), names)
    config = Folder(folder).get("config.json") or b"{}"
    return _from_checkpoint(str(folder), Vocab.from_checkpoint(folder), config)


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
    return Yarn(number(rope.get("beta_fast", 32)))


def from_hub(name: str, offline: bool) -> Side:
    found = hub.resolve(name, offline=offline)
    if isinstance(found, Path):
        return load(found)  # it came to be meanwhile
    if not isinstance(found, HubRepo):
        return from_header(hub.gguf_header(found), f"{found.repo}:{found.files[0]}")
    if not set(MODELS) & set(found.files):
        raise _no_model(name, found.files)
    wanted = [*(file for file in FILES if file in found.files), *more_templates(found.files)]
    files = hub.repo_files(found.repo, wanted, revision=found.revision)
    return _from_checkpoint(name, Vocab.from_checkpoint(files), files.get("config.json", b"{}"))
