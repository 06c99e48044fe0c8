"""Checkpoints with vision: the language model's part of their config.json and of their tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's config: `text_config` before the rest, or `config` itself where it has none.

    `architectures` stays that of the whole. Raises InputError where text_config is no object.
    """
    text = config.get("text_config")
    if text is None:
        return config
    if not isinstance(text, Mapping):
        raise InputError(
            f"config.json: text_config is {text!r}", "it must be an object", "check the checkpoint"
        )
    return {**config, **text, "architectures": config.get("architectures")}
