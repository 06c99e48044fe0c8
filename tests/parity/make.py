"""Makes expected.json: what transformers says of names and shapes, and what llama.cpp's converter writes.

    python tests/parity/make.py LLAMA_CPP_FOLDER

LLAMA_CPP_FOLDER holds convert_hf_to_gguf.py; it needs torch, transformers and sentencepiece, and this
repository on PYTHONPATH. No test runs it: a new answer is a change that someone has read.
"""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import parity_cases  # noqa: E402
import parity_files  # noqa: E402

from gguftools.checkpoint.safetensors import read_table  # noqa: E402
from gguftools.header import read_header  # noqa: E402


def main() -> None:
    import transformers

    source = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(source))
    found: dict[str, Any] = {"made with": f"transformers {transformers.__version__}", "cases": {}}
    for name, case in parity_cases.CASES.items():
        asked = ask(case)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = parity_files.write(Path(folder) / "tiny", case, asked)
            files = {kind: convert(source, checkpoint, kind, case.pre) for kind in case.outtypes}
        found["cases"][name] = {**asked, "files": files}
    text = json.dumps(found, ensure_ascii=False, indent=1)
    parity_files.EXPECTED.write_text(text + "\n")


def ask(case: parity_cases.Case) -> dict[str, Any]:
    """config.json and the tensors' shapes as transformers saves such a model."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(case.model_type, **case.changes)
    with tempfile.TemporaryDirectory() as folder:
        getattr(transformers, case.architecture)(config).to(torch.bfloat16).save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        table = read_table(Path(folder) / "model.safetensors")
    return {"config": saved, "shapes": {name: list(entry.shape) for name, entry in sorted(table.items())}}


def convert(source: Path, checkpoint: Path, outtype: str, pre: str) -> dict[str, Any]:
    """The digest of what the converter writes.

    It knows a pre-tokenizer by the ids of one sample text, which a vocabulary of a few hundred tokens cannot
    give: the name is given to it. All else is its own doing.
    """
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    out = checkpoint.parent / f"{outtype}.gguf"
    sys.argv[1:] = [str(checkpoint), "--outfile", str(out), "--outtype", outtype]
    runpy.run_path(str(source / "convert_hf_to_gguf.py"), run_name="__main__")
    return parity_files.digest(read_header(out))


if __name__ == "__main__":
    main()
