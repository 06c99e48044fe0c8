"""edit: keys of a GGUF are set, removed, copied, or aligned to those of a target; the tensors stay."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError, NotFound
from ...header import Header, read_header
from ...header.shards import local
from ..check import side
from . import align as _align
from . import changes as _changes
from . import keys as _keys
from . import layout, write
from .changes import Change as Change
from .judge import judge, template_failure
from .write import Progress

MAX_TEMPLATE = 1 << 20  # bytes of a template's file
SHARD_HEADER = 32 << 20  # of a later shard, which holds no vocabulary

log = logging.getLogger("gguftools.verbs.edit")


@dataclass(frozen=True, slots=True)
class Plan:
    """An edit that may be written: what changes, what to be warned of, which of check's rules it mends."""

    header: Header
    keys: _keys.Keys
    state: write.State
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    mended: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edited:
    """What was done. `path` None: nothing was written, for nothing changes or it was a dry run.

    `data`: whether the tensors were "copied", or are "shared" with the file as it was, which takes no room.
    """

    path: Path | None
    data: str | None
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    mended: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "path": None if self.path is None else str(self.path),
            "data": self.data,
            "changes": [change.to_json() for change in self.changes],
            "warnings": list(self.warnings),
            "mended": list(self.mended),
        }


def edit(
    file: str | Path,
    out: str | Path | None = None,
    *,
    in_place: bool = False,
    dry_run: bool = False,
    set: Mapping[str, Any] | None = None,
    set_token: Mapping[int, str] | None = None,
    token_type: Mapping[int, str | int] | None = None,
    remove: Sequence[str] = (),
    copy: Sequence[str] = (),
    copy_from: str | Path | None = None,
    template: str | Path | None = None,
    align_to: str | Path | None = None,
    force: bool = False,
    offline: bool = False,
    progress: Progress | None = None,
) -> Edited:
    """Writes a GGUF with other keys to `out`, or in place; a split model to the folder `out`.

    The keywords are those of `plan`; `progress("copy", fraction)` may return False: LoadAborted. Raises
    what `plan` and `commit` raise; in each case the old file is whole and nothing is left behind.
    """
    planned = plan(
        file,
        set=set,
        set_token=set_token,
        token_type=token_type,
        remove=remove,
        copy=copy,
        copy_from=copy_from,
        template=template,
        align_to=align_to,
        offline=offline,
    )
    if dry_run:
        return _done(planned, None, None)
    for warning in planned.warnings:
        log.warning("%s", warning)
    place = None if out is None else local(out)
    return commit(planned, place, in_place=in_place, force=force, progress=progress)


def plan(
    file: str | Path,
    *,
    set: Mapping[str, Any] | None = None,
    set_token: Mapping[int, str] | None = None,
    token_type: Mapping[int, str | int] | None = None,
    remove: Sequence[str] = (),
    copy: Sequence[str] = (),
    copy_from: str | Path | None = None,
    template: str | Path | None = None,
    align_to: str | Path | None = None,
    offline: bool = False,
) -> Plan:
    """What an edit would change; nothing is written. In this order: align, copy, template, remove, set.

    `set` maps KEY, KEY:TYPE, KEY:TYPE[] or KEY[I] to values, which may be texts as on a command line; None
    keeps the value and gives it TYPE. `set_token` and `token_type` map ids to stored texts and to types.
    `copy` names keys of `copy_from`; `template` is a file. `align_to` is a model whose draft this is to be.
    Raises InputError for what a key cannot hold, for a key that is not there, and where libllama could not
    load the result but could load the file; IncompatibleDraft where ordinary tokens differ from `align_to`'s;
    NotFound, FormatError, HubError for what cannot be read.
    """
    path = local(file)
    if not path.exists():
        raise NotFound(f"{file}: no such file", "edit changes files of this machine", "download it first")
    header = side.read(path)
    state = write.state(header.files[0])
    keys = _keys.of(header)
    warnings: list[str] = []
    target = None if align_to is None else side.load(align_to, offline=offline)
    if target is not None:
        warnings += _align.align(keys, side.from_header(header, str(file)), target)
    _copy(keys, copy, copy_from, offline)
    if template is not None:
        warnings += _template(keys, local(template))
    for key in remove:
        _keys.remove(keys, key)
    for name, value in (set or {}).items():
        _keys.set_value(keys, name, value)
    for i, text in (set_token or {}).items():
        _keys.set_token(keys, i, text)
    for i, kind in (token_type or {}).items():
        _keys.set_token_type(keys, i, kind)
    keys = _keys.sealed(keys)
    found = _changes.between(_keys.of(header), keys)
    if not found:
        return Plan(header, keys, state, (), tuple(warnings), ())
    new = layout.result(header, layout.header_bytes(header, keys))
    _refuse_shards(header, new)
    judged = judge(header, new, found)
    if target is not None:
        _align.need_compatible(side.from_header(new, str(file)), target)
    return Plan(header, keys, state, found, (*warnings, *judged.warnings), judged.mended)


def commit(
    planned: Plan,
    out: Path | None = None,
    *,
    in_place: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Edited:
    """Writes a Plan; nothing where it changes nothing.

    Raises OutputExists, DiskFull, LoadAborted, and InputError for a place that cannot be written or a file
    that was changed since it was planned.
    """
    write.check_goal(planned.header, out, in_place=in_place, force=force)
    if not planned.changes:
        return _done(planned, None, None)
    path, data = write.write(planned.header, planned.keys, planned.state, out, force=force, progress=progress)
    return _done(planned, path, data)


def _done(planned: Plan, path: Path | None, data: str | None) -> Edited:
    return Edited(path, data, planned.changes, planned.warnings, planned.mended)


def _copy(keys: _keys.Keys, names: Sequence[str], source: str | Path | None, offline: bool) -> None:
    if not names and source is None:
        return
    if not names or source is None:
        raise InputError("copying takes keys and a file", "one of them is missing", "--copy KEY --from FILE")
    path = local(source)
    header = side.read(path) if path.exists() else side.load(source, offline=offline).header
    if header is None:
        raise InputError(f"{source} is no GGUF", "keys are copied from a GGUF", "convert it first")
    _keys.copy(keys, names, header)


def _template(keys: _keys.Keys, path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEMPLATE + 1)
        source = data.decode()
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{path}: cannot be read", why, "give the file of a chat template") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is no text", "a template is UTF-8", "give a Jinja template") from None
    _keys.set_template(keys, source)
    why = template_failure(source)
    return [f"the new chat template cannot write a conversation: {why}"] if why else []


def _refuse_shards(old: Header, new: Header) -> None:
    """A later shard may repeat general.* keys, which then must say the same."""
    for path in old.files[1:]:
        with path.open("rb") as file:
            part = read_header(file.read(SHARD_HEADER), name=str(path))
        for key, value in part.keys.items():
            plain = key.startswith("general.") and isinstance(value, str | int | float)
            if plain and new.get_plain(key) != value:
                why = f"{path.name} repeats the key, and only the first shard is written"
                raise InputError(
                    f"{key} cannot be edited", why, "join the shards first: llama-gguf-split --merge"
                )
