"""Which type each tensor gets: libllama is asked, with a stand-in for the model.

llama.cpp decides from keys, names, how wide the rows are, and whether a tensor has several rows and matrices.
So llama_model_quantize gets a file with the model's keys and names, at most two short rows of zeros in each
matrix, and its answer is read from the file that it writes: a Kimi-K2 takes a second and a few MB. What the
installed llama.cpp would do holds, without a copy of its rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ... import gguf_write
from ...errors import GGUFToolsError, InputError, Unsupported
from ...gguf_write import Announced, Key
from ...header import read_header
from ...header.ggml_types import TENSOR_TYPES
from ...libllama import mixes
from ...libllama import quantize as llama

Shape = tuple[int, ...]  # GGUF's order: the width of a row first

OUTPUT = "output.weight"
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
BLOCK = 256  # the widest block of any type
_PLAIN = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for, as keys of FILE_TYPES and of ROW_TYPES; None: llama.cpp's choice."""

    file_type: str
    output_type: str | None = None
    embedding_type: str | None = None
    overrides: tuple[tuple[str, str], ...] = ()  # (regular expression, type)

    @property
    def types(self) -> set[str]:
        """The types that were named for single tensors."""
        named = {self.output_type, self.embedding_type, *(kind for _, kind in self.overrides)}
        return {kind for kind in named if kind is not None}


@dataclass(frozen=True, slots=True)
class Fate:
    """The ggml type that a tensor gets; `wished`: what it would get if its rows were whole blocks."""

    type: int
    wished: int


def wish(
    file_type: str,
    output_type: str | None = None,
    embedding_type: str | None = None,
    tensor_type: Sequence[str] = (),
    *,
    weighted: bool = False,
) -> Wish:
    """A Wish from a person's names, in any case; tensor_type: "REGEX=TYPE" each. Raises InputError.

    weighted: there is an importance matrix.
    """
    overrides = []
    for rule in tensor_type:
        pattern, equals, kind = rule.rpartition("=")
        if not equals or not pattern or "\0" in pattern:
            raise InputError(
                f"tensor type {rule!r} cannot be understood",
                "it is no REGEX=TYPE",
                "for example: --tensor-type 'attn_v=q8_0'",
            )
        overrides.append((pattern, _known(kind, llama.ROW_TYPES, "tensor type")))
    number = llama.FILE_TYPES[_known(file_type, llama.FILE_TYPES, "type")]
    made = Wish(
        next(name for name, value in llama.FILE_TYPES.items() if value == number),  # Q4_K is Q4_K_M
        _row_type(output_type, "output type"),
        _row_type(embedding_type, "embedding type"),
        tuple(overrides),
    )
    _can_be(made, weighted)
    return made


def _row_type(name: str | None, what: str) -> str | None:
    return None if name is None else _known(name, llama.ROW_TYPES, what)


def _known(name: str, types: Mapping[str, int], what: str) -> str:
    if name.upper() not in types:
        raise InputError(f"{what} {name!r} is unknown", f"it is one of {', '.join(types)}", "choose one")
    return name.upper()


def _can_be(wish: Wish, weighted: bool) -> None:
    """Raises InputError for what llama.cpp would ignore without a word, or end the process for."""
    if wish.overrides and wish.file_type in _PLAIN:
        raise InputError(
            f"tensor types have no effect with {wish.file_type}",
            "llama.cpp heeds them where the type of the whole is quantized",
            f"take --type q8_0 and add --tensor-type '.={wish.file_type.lower()}' as the last",
        )
    for kind in sorted(wish.types):
        if not weighted and llama.needs_weights(llama.ROW_TYPES[kind]):
            raise _needs(kind)


def _needs(kind: str) -> InputError:
    return InputError(
        f"{kind} needs an importance matrix",
        "with so few bits it has to know which columns matter",
        "give one with --imatrix; llama-imatrix makes it",
    )


def _lacks(why: str) -> InputError:
    return InputError(
        "the importance matrix lacks a tensor",
        why,
        "give this tensor another type with --tensor-type, or take a longer text for the importance matrix",
    )


def fates(
    keys: Sequence[Key], shapes: Mapping[str, Shape], wish: Wish, weighted: Collection[str] | None = None
) -> dict[str, Fate | None]:
    """What each tensor of a model with these keys becomes; None: it stays as it is.

    weighted: the tensors that an importance matrix knows; None without one. No tensor's data is needed, so a
    conversion can ask before it writes. Raises InputError (an importance matrix is missing, or lacks what it
    must have; a regular expression is none), Unsupported (libllama does not know the architecture).
    """
    _must_fit(shapes, wish)
    whole = {name: (BLOCK, *shape[1:]) for name, shape in shapes.items()}
    allowed, given, wished = _ask(
        keys, [(whole, Wish("Q8_0"), None), (shapes, wish, weighted), (whole, wish, weighted)]
    )
    q8_0 = llama.ROW_TYPES["Q8_0"]
    return {name: Fate(given[name], wished[name]) if allowed[name] == q8_0 else None for name in shapes}


def _must_fit(shapes: Mapping[str, Shape], wish: Wish) -> None:
    """Raises InputError where a type was asked for that llama.cpp would write without asking what fits."""
    asked = dict.fromkeys(EMBEDDINGS, wish.embedding_type) | {OUTPUT: wish.output_type}
    for name, kind in asked.items():
        if kind is None or name not in shapes:
            continue
        width, block = _width(shapes[name]), TENSOR_TYPES[llama.ROW_TYPES[kind]].block
        if width % block:
            raise InputError(
                f"{name} cannot be {kind}",
                f"its rows of {width} are no whole blocks of {block}",
                "take a type with blocks of 32, as q8_0, or f16",
            )
    if wish.output_type and wish.file_type in _PLAIN and OUTPUT not in shapes:
        raise InputError(
            f"the model has no {OUTPUT}",
            "its embedding is its output matrix too",
            "give --embedding-type instead of --output-type",
        )


# Shapes, what is asked of them, names that have importances
Request = tuple[Mapping[str, Shape], Wish, "Collection[str] | None"]


def _ask(keys: Sequence[Key], requests: Sequence[Request]) -> list[dict[str, int]]:
    """The types in what llama_model_quantize makes of stand-ins in F16. The first: with one type for all."""
    with TemporaryDirectory(prefix="gguftools-") as name:
        folder = Path(name)
        questions = []
        for number, (shapes, wish, weighted) in enumerate(requests):
            stand_in = [_small(name, shape) for name, shape in shapes.items()]
            data = bytes(gguf_write.data_bytes(stand_in))
            (folder / f"{number}.in").write_bytes(gguf_write.header_bytes(keys, stand_in) + data)
            questions.append(_question(number, wish, stand_in, weighted))
        if why := mixes.ask(folder, questions):
            taken = (folder / questions[0].out).exists()  # nothing but keys and names can be wrong there
            raise _refused(why, requests[-1][1], requests[-1][2] is not None) if taken else _unknown(why)
        outputs = [read_header(folder / question.out) for question in questions]
        return [{info.name: info.type for info in header.tensors} for header in outputs]


def _question(
    number: int, wish: Wish, stand_in: Sequence[Announced], weighted: Collection[str] | None
) -> mixes.Question:
    return mixes.Question(
        f"{number}.in",
        f"{number}.out",
        llama.FILE_TYPES[wish.file_type],
        _number(wish.output_type),
        _number(wish.embedding_type),
        [(pattern, llama.ROW_TYPES[kind]) for pattern, kind in wish.overrides],
        None if weighted is None else _ones(stand_in, weighted),
        pure=number == 0,
    )


def _number(kind: str | None) -> int | None:
    return None if kind is None else llama.ROW_TYPES[kind]


def _width(shape: Shape) -> int:
    return shape[0] if shape else 1


def _small(name: str, shape: Shape) -> Announced:
    """The stand-in of a tensor: as wide as its last block, or one, and 1 or 2 of each further dimension."""
    small = (_width(shape) % BLOCK or BLOCK, *(min(n, 2) for n in shape[1:]))
    return Announced(name, small, llama.F16, math.prod(small) * 2)


def _ones(stand_in: Sequence[Announced], names: Collection[str]) -> dict[str, int]:
    """How many importances the named tensors have; embedding and output always some: llama.cpp does not ask
    for them, and ggml ends the process where a type needs them. Their rows are refused then, see rows.py."""
    names = {*names, OUTPUT, *EMBEDDINGS}
    return {
        tensor.name: tensor.shape[0] * math.prod(tensor.shape[2:3])
        for tensor in stand_in
        if tensor.name in names
    }


def _unknown(why: str) -> Unsupported:
    return Unsupported(
        "libllama cannot quantize this model",
        why,
        "update llama-cpp-python, which may know it then, or mend the keys that it names",
    )


def _refused(why: str, wish: Wish, weighted: bool) -> GGUFToolsError:
    if "imatrix" in why or "importance matrix" in why:
        return _lacks(why) if weighted else _needs(wish.file_type)
    if wish.overrides:  # without them it took the model
        patterns = ", ".join(repr(pattern) for pattern, _ in wish.overrides)
        return InputError(
            "a tensor type's regular expression cannot be used",
            f"{patterns}: {why}",
            "the pattern is ECMAScript's; escape ( [ { * + with a backslash to mean themselves",
        )
    return _unknown(why)


def unmatched(names: Sequence[str], wish: Wish) -> list[str]:
    """The patterns that fit no tensor's name: most likely a slip of the pen."""
    found = []
    for pattern, _ in wish.overrides:
        try:
            fits = re.compile(pattern).search
        except re.error:  # libllama took it: its dialect differs
            continue
        if not any(fits(name) for name in names):
            found.append(pattern)
    return found
