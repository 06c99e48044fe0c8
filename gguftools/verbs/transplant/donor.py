"""Donor: the small model that gets another vocabulary: its keys, its vocabulary, rows of its two matrices."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import arch, goal, hub
from ...checkpoint import floats
from ...errors import FormatError, InputError, Unsupported
from ...header import Header, TensorInfo, read_header, read_tensor
from ...hub.names import HubFile
from ...vocab import Vocab
from ..convert import convert

Progress = Callable[[str, float], "bool | None"]

EMBEDDING, HEAD, HEAD_BIAS = "token_embd.weight", "output.weight", "output.bias"
BLOCK = 4 << 20  # bytes hashed or copied at a time
_ANOTHER = "choose another donor"


class Donor:
    """A GGUF of a llama, qwen2 or qwen3. Rows are read where they lie: no matrix is ever held as float32.

    Any thread may ask for rows. `output_bias` is [n_tokens], None where the file has none.
    """

    def __init__(self, header: Header, name: str = "") -> None:
        """`name` stands in for the file's in messages. Raises Unsupported, FormatError, InputError."""
        self.header = header
        self.path = header.path
        self.shown = name or str(header.path)
        self.arch = _architecture(header, self.shown)
        self.vocab = Vocab.from_header(header)
        self.n_embd = _count(header, f"{self.arch}.embedding_length")
        self.n_layer = _count(header, f"{self.arch}.block_count")
        self.context_length = _count(header, f"{self.arch}.context_length")
        self.name = header.get_str("general.name", "") or Path(self.shown).stem
        infos = {info.name: info for info in header.tensors}
        self._embedding = self._matrix(infos, EMBEDDING)
        self._head = self._matrix(infos, HEAD) if HEAD in infos else self._embedding
        self.tied = HEAD not in infos
        self.output_bias = self._bias(infos.get(HEAD_BIAS))

    @classmethod
    @contextmanager
    def open(
        cls, src: str | Path, out: Path, *, offline: bool = False, progress: Progress | None = None
    ) -> Iterator[Donor]:
        """A GGUF, a Hugging Face folder, or either by its name on the Hub; closed when the block ends.

        A checkpoint becomes a GGUF in a scratch folder beside `out`. Raises what convert and hub.download
        raise too.
        """
        found = hub.resolve(src, offline=offline)
        if isinstance(found, HubFile):
            found = hub.download(found, offline=offline, progress=progress)
        if isinstance(found, Path) and _is_gguf(found):
            with cls(read_header(found))._closing() as donor:
                yield donor
            return
        if isinstance(found, Path):
            _need_model(found, src)
        with goal.scratch(out, "donor") as folder:
            made = folder / "donor.gguf"
            convert(found if isinstance(found, Path) else src, made, offline=offline, progress=progress)
            with cls(read_header(made), str(src))._closing() as donor:
                yield donor

    @contextmanager
    def _closing(self) -> Iterator[Donor]:
        try:
            yield self
        finally:
            self.close()

    def close(self) -> None:
        """Lets go of the file, which Windows cannot remove before."""
        self._embedding = self._head = (np.empty((0, 0), np.uint8), 0)

    def embedding(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """[len(ids), n_embd]: rows of token_embd."""
        return self._rows(self._embedding, ids)

    def head(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """[len(ids), n_embd]: rows of output, which is token_embd where the file has no other."""
        return self._rows(self._head, ids)

    def twins(self) -> NDArray[np.int32]:
        """[n_tokens]: for each id the lowest one with the same row of output, mostly itself."""
        seen: dict[bytes, int] = {}
        rows = self._head[0].view(np.uint8)
        return np.array(
            [seen.setdefault(blake2b(row, digest_size=16).digest(), i) for i, row in enumerate(rows)],
            np.int32,
        )

    def digest(self, tell: Callable[[float], None]) -> str:
        """sha256 over the bytes of the file (of all shards, one after the other)."""
        state, done = hashlib.sha256(), 0
        for path in self.header.files:
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    state.update(block)
                    done += len(block)
                    tell(min(done / self.header.nbytes, 1.0))
        return state.hexdigest()

    def _rows(self, matrix: tuple[NDArray[np.generic], int], ids: NDArray[np.int32]) -> NDArray[np.float32]:
        data, kind = matrix
        return floats.to_f32(np.take(data, ids, axis=0), kind)

    def _matrix(self, infos: dict[str, TensorInfo], name: str) -> tuple[NDArray[np.generic], int]:
        """The rows of a matrix as they lie in the file, and their type; one is widened as a trial."""
        if name not in infos:
            why = "it holds a vocabulary alone" if not infos else "a language model has one"
            raise InputError(f"{self.shown} has no {name}", why, _ANOTHER)
        info, wanted = infos[name], (self.n_embd, self.vocab.n_tokens)
        if info.shape != wanted:
            why = f"{name} has the shape {list(info.shape)}; by the file's own keys it is {list(wanted)}"
            raise FormatError(self.shown, None, why, "check the file: gguftools check FILE")
        data: NDArray[np.generic] = np.frombuffer(read_tensor(self.header, info), np.uint8)
        data = data.reshape(self.vocab.n_tokens, -1)
        data = data.view(floats.PLAIN[info.type]) if info.type in floats.PLAIN else data
        try:
            floats.to_f32(data[:1], info.type)
        except Unsupported as error:
            error.what = f"{self.shown}: {name}: {error.what}"
            error.args = (error.what, error.why, error.hint)
            raise
        return data, info.type

    def _bias(self, info: TensorInfo | None) -> NDArray[np.float32] | None:
        if info is None:
            return None
        if info.type != floats.F32 or info.shape != (self.vocab.n_tokens,):
            why = f"{HEAD_BIAS} is not one F32 number for each token"
            raise FormatError(self.shown, None, why, _ANOTHER)
        return np.frombuffer(read_tensor(self.header, info), "<f4").astype(np.float32)


def _architecture(header: Header, name: str) -> str:
    known = [model.NAME for model in arch.EXPORTED]
    if header.architecture not in known:
        raise Unsupported(
            f"{name} cannot be a donor: it has the architecture {header.architecture}",
            f"possible are {', '.join(known)}",
            "choose a small model of one of these: Qwen2.5-Coder-0.5B, Qwen3-0.6B, SmolLM2-135M",
        )
    return header.architecture


def _count(header: Header, key: str) -> int:
    value = header.get_int(key, 0)
    if not 0 < value < 1 << 31:
        why = f"{key} is {value}" if key in header.keys else f"the key {key} is missing"
        raise FormatError(header.path, header.where.get(key), why, _ANOTHER)
    return value


def _is_gguf(path: Path) -> bool:
    """Whether it is a file, or a folder that holds a GGUF, which counts before all else in it."""
    return not path.is_dir() or any(path.glob("*.gguf"))


def _need_model(folder: Path, name: str | Path) -> None:
    """Raises InputError where a folder is no checkpoint. TARGET may be a tokenizer alone, a donor may not."""
    has_config = (folder / "config.json").is_file()
    if has_config and any(folder.glob("*.safetensors*")):
        return
    lacks = "no config.json" if any(folder.glob("*.safetensors*")) else "no weights"
    raise InputError(
        f"{name} cannot be a donor: it has {lacks}",
        "a donor's folder holds config.json and *.safetensors, or one GGUF",
        "the donor comes first: gguftools transplant DONOR TARGET -o DRAFT.gguf",
    )
