"""What all measures share: the donor in libllama, both tokenizers, the row that texts begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .... import libllama
from ....libllama import hardware
from ....libllama.devices import CPU
from ....libllama.states import Reader
from ....vocab import Vocab
from ..align import Alignment
from ..donor import Donor
from ..rows import NewRows
from ..special_map import Mapped
from ..text import Text
from ..tokenizing import Tokenizer, start_id
from .losses import Reading, Spelled, read_all, spell_all
from .marginal import FLOOR, Walker
from .scoring import Head

N_CTX = 2048
N_BRANCHES = 33  # texts in the reader: the one that is read, and continuations of it
_ROOM = N_CTX // 2  # tokens of a text; the rest of the context is for its continuations


@dataclass(frozen=True, slots=True)
class Setup:
    """A donor and a target. Closed when the block of `open` ends."""

    donor: Donor
    target: Vocab
    alignment: Alignment
    mapped: Sequence[Mapped]
    theirs: Tokenizer  # the donor's
    ours: Tokenizer  # the target's
    reader: Reader
    start_ids: Sequence[int]  # of the donor
    start: NDArray[np.float32]  # [k, n_embd] their rows

    @classmethod
    @contextmanager
    def open(
        cls,
        donor: Donor,
        target: Vocab,
        alignment: Alignment,
        mapped: Sequence[Mapped],
        threads: int | None = None,
    ) -> Iterator[Setup]:
        """Loads the donor. Raises LoadError; Unsupported for a vocabulary that cannot encode."""
        with ExitStack() as stack:
            theirs, ours = (stack.enter_context(Tokenizer(vocab)) for vocab in (donor.vocab, target))
            weights = libllama.load(donor.path, CPU, "auto", None)
            stack.callback(weights.close)
            n_threads = threads or hardware.physical_cores()
            reader = stack.enter_context(Reader(weights, N_CTX, n_threads, N_BRANCHES))
            ids = [start_id(donor.vocab)]
            start = donor.embedding(np.array(ids, np.int32))
            yield cls(donor, target, alignment, mapped, theirs, ours, reader, ids, start)

    def spell(self, tokenizer: Tokenizer, texts: Sequence[Text]) -> list[Spelled]:
        """The texts as `theirs` or `ours` spells them, cut to fit."""
        return spell_all(tokenizer, texts, _ROOM)

    def read(self, rows: NewRows, texts: Sequence[Spelled], tell: Callable[[float], None]) -> list[Reading]:
        """The states of texts that are fed in as these rows."""
        return read_all(self.reader, rows, texts, self.start, tell)

    def walker(self, head: Head, floor: float = FLOOR) -> Walker:
        """What finds exact marginals; `head`: the donor's own."""
        ends = {one.donor[0]: one.target for one in self.mapped if one.draftable and len(one.donor) == 1}
        return Walker(self.reader, head, self.theirs, self.ours, ends, self.start_ids, floor)
