"""What texts teach: how often tokens occur, and by one pass of the donor, what its states say of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import libllama
from ...errors import InputError, Unsupported
from ...libllama import hardware
from ...libllama.devices import CPU
from ...libllama.states import Reader
from ...vocab import Vocab
from .align import Alignment, Kind
from .donor import Donor, Progress
from .inputs import fit as fit_joint
from .lens import Passage, enough
from .lens import fit as fit_lens
from .rows import MadeRows, numbers, read_as_last
from .spelling import ordinary
from .text import Text, counting_texts, model_texts, take
from .tokenizing import Tokenizer, start_id
from .unit import N_TOKENS as UNIT_TOKENS
from .unit import Unit
from .unit import fit as fit_unit
from .user_text import user_texts
from .walk import SHAPES, Walk, walk
from .written import written_by

# What a token of each kind of text counts. Python's own text is large and unlike what a model answers.
WEIGHTS = {"english": 0.15, "code": 0.025, "numbers": 0.1}
N_CTX = 2048  # tokens read at a time
FEWEST, MOST = 1_000, 50_000  # tokens of the donor's pass: memory grows with them

log = logging.getLogger("gguftools.verbs.transplant")

Tell = Callable[[str], Callable[[float], None]]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The rows, the shares of walk.SHAPES in the text (None where none was counted), and a Unit where a bias
    has to be folded."""

    rows: MadeRows
    coverage: dict[str, float] | None
    unit: Unit | None


@dataclass(frozen=True, slots=True)
class Source:
    """What the donor reads, and how many of its tokens. `texts`: of a file or folder.

    `name`: "auto", "donor", or the file's name and a digest of its text; no place on a disk.
    """

    name: str
    n_tokens: int
    texts: tuple[Text, ...] = ()


def open_source(calibrate: str | Path | None, n_tokens: int) -> Source | None:
    """None for None. Raises InputError, NotFound for what cannot be used, before any work is done."""
    if type(n_tokens) is not int or not FEWEST <= n_tokens <= MOST:
        raise InputError(
            f"calibrate_tokens is {n_tokens!r}", f"it takes {FEWEST:,} to {MOST:,}", "25000 is usual"
        )
    if calibrate == "":
        raise InputError("the name of the calibration text is empty", "it is auto, donor, a file or a folder")
    if calibrate is None or calibrate in ("auto", "donor"):
        return None if calibrate is None else Source(str(calibrate), n_tokens)
    path = Path(calibrate)
    texts = tuple(user_texts(path))
    digest = sha256("\0".join(text.text for text in texts).encode("utf-8", "replace")).hexdigest()
    name = path.resolve().name.encode("utf-8", "replace").decode()
    return Source(f"{name} sha256:{digest}", n_tokens, texts)


def check_enough(donor: Donor, source: Source | None) -> None:
    """Raises InputError where too few tokens are to be read for this donor."""
    if source is not None and source.n_tokens < enough(donor):
        raise InputError(
            f"{source.n_tokens:,} tokens are too few to calibrate on",
            f"{donor.shown} needs {enough(donor):,}: fewer would make the draft worse",
            f"give --calibrate-tokens {enough(donor)} or more",
        )


def calibrate(
    donor: Donor,
    target: Vocab,
    alignment: Alignment,
    source: Source | None,
    *,
    fold: bool,
    tell: Tell,
    progress: Progress | None = None,
) -> Calibrated:
    """Without a `source` text is counted alone. `fold`: a Unit is needed.

    Raises InputError where too few tokens are to be read for this donor, and what written_by does.
    """
    check_enough(donor, source)
    with ExitStack() as stack:
        theirs, ours = (stack.enter_context(Tokenizer(vocab)) for vocab in (donor.vocab, target))
        own = _own_texts(donor, source, progress)
        counts, coverage = _count(own, ours, theirs, alignment, tell("count"))
        tell("join")(0.0)
        joint = fit_joint(donor)
        tell("join")(1.0)
        passages: list[Passage] = []
        found = None
        if source is not None or fold:
            wanted = _to_read(own, source.n_tokens if source is not None else UNIT_TOKENS, theirs)
            passages = _read(donor, wanted or _any_tokens(donor), tell("donor reads"))
            several = _several(alignment)
            found = fit_lens(donor, passages, several) if source is not None and wanted else None
            if source is not None and found is None and len(several):
                log.warning(
                    "the text has fewer than the %s tokens that second pieces need: it was only counted",
                    f"{enough(donor):,}",
                )
        rows = MadeRows(alignment, donor, counts, joint, found, read_as_last(target), numbers(target))
        folding = fit_unit([one.states for one in passages]) if fold else None
    return Calibrated(rows, coverage, folding)


def uncounted(donor: Donor, target: Vocab, alignment: Alignment, *, fold: bool, tell: Tell) -> Calibrated:
    """The same for vocabularies that cannot encode: shares by the order of ids."""
    rows = MadeRows(
        alignment, donor, joint=fit_joint(donor), unjoined=read_as_last(target), numbers=numbers(target)
    )
    if not fold:
        return Calibrated(rows, None, None)
    try:
        with Tokenizer(donor.vocab) as theirs:
            wanted = _to_read([], UNIT_TOKENS, theirs)
    except Unsupported:
        wanted = []
    passages = _read(donor, wanted or _any_tokens(donor), tell("donor reads"))
    return Calibrated(rows, None, fit_unit([one.states for one in passages]))


def _own_texts(donor: Donor, source: Source | None, progress: Progress | None) -> Sequence[Text]:
    """The texts that were asked for; none for our own."""
    if source is None or source.name != "donor":
        return () if source is None else source.texts
    found = written_by(donor.path, source.n_tokens, progress=progress)
    if not found:
        log.warning("the donor wrote nothing of use: it reads the text that comes with gguftools")
    return found


def _count(
    own: Sequence[Text],
    ours: Tokenizer,
    theirs: Tokenizer,
    alignment: Alignment,
    tell: Callable[[float], None],
) -> tuple[NDArray[np.float64], dict[str, float]]:
    """[n_target] weighted counts, and the coverage of the texts asked for (of ours: of those in models/)."""
    groups: dict[tuple[str, bool], list[Text]] = {}
    for one in [*own, *counting_texts()]:
        known = one.kind in WEIGHTS and (one.kind == "numbers" or one.name.startswith("Python"))
        groups.setdefault((one.kind, not known), []).append(one)
    total = sum(len(one.text) for some in groups.values() for one in some)
    empty = alignment.starts[1:] == alignment.starts[:-1]
    first = np.where(empty, -1, np.append(alignment.pieces, 0)[alignment.starts[:-1]]).astype(np.int32)
    counts, shapes, done = np.zeros(len(first)), dict.fromkeys(SHAPES, 0), 0
    for (kind, full), some in groups.items():

        def part(n: int, done: int = done) -> None:
            tell((done + n) / total)

        found = walk(some, ours, theirs, part)
        if found.n_skipped:
            log.warning(
                "texts not counted, as a vocabulary changes them: %d of %d", found.n_skipped, found.n_texts
            )
        counts += found.counts(first) * (1.0 if full else WEIGHTS[kind])
        if full and (not own or kind in ("user", "written")):
            shapes = {shape: shapes[shape] + n for shape, n in found.shapes.items()}
        done += sum(len(one.text) for one in some)
    none = np.empty(0, np.int32)
    return counts, Walk(none, none, shapes, 0, 0).coverage()


def _several(alignment: Alignment) -> NDArray[np.int32]:
    """The first piece of each target token of several."""
    firsts: NDArray[np.int32] = alignment.pieces[alignment.starts[:-1][alignment.kind == Kind.PIECES]]
    return firsts


def _to_read(own: Sequence[Text], n_tokens: int, theirs: Tokenizer) -> list[NDArray[np.int32]]:
    """About `n_tokens` of the texts' tokens: of each at least two, at most what the donor reads at once."""

    def size(part: str) -> int:
        return len(theirs.encode(part))

    texts = take(own, n_tokens, size) if own else model_texts(n_tokens, size)
    spelled = [found[0] for one in texts if (found := theirs.spell(one.text))]
    return [ids[: N_CTX - 1] for ids in spelled if len(ids) > 1]


def _any_tokens(donor: Donor) -> list[NDArray[np.int32]]:
    """Ordinary tokens in a random order: for a donor that no text can be encoded for."""
    ids = np.flatnonzero(ordinary(donor.vocab)).astype(np.int32)
    ids = ids if len(ids) else np.zeros(1, np.int32)
    return np.array_split(np.random.default_rng(1).choice(ids, UNIT_TOKENS), 8)


def _read(donor: Donor, spelled: Sequence[NDArray[np.int32]], tell: Callable[[float], None]) -> list[Passage]:
    """The donor's pass: each text after the token that texts begin with."""
    total, done, passages = sum(map(len, spelled)), 0, []
    start = start_id(donor.vocab)
    tell(0.0)
    weights = libllama.load(donor.path, CPU, "auto", None)
    try:
        with Reader(weights, N_CTX, hardware.physical_cores()) as reader:
            for ids in spelled:
                states = reader.read([start, *ids[:-1].tolist()])
                passages.append(Passage(ids, states))
                done += len(ids)
                tell(done / total)
    finally:
        weights.close()
    return passages
