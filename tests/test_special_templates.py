"""The special tokens of one family in another: what chat templates say of them."""

from __future__ import annotations

import logging

import pytest
from alignments import CHATML, FAMILIES, of_family, told
from vocabularies import bpe

from gguftools.verbs.transplant import conversation
from gguftools.verbs.transplant.special_map import special_map
from gguftools.vocab import Vocab

KIMI_FROM_QWEN = {
    "[BOS]": ("<|endoftext|>", False),
    "[EOS]": ("<|endoftext|>", True),
    "<|im_end|>": ("<|im_end|>", True),
    "<|im_user|>": ("<|im_start|>", False),
    "<|im_assistant|>": ("<|im_start|>", False),
    "<|start_header_id|>": ("<|im_start|>", False),
    "<|end_header_id|>": ("\n", False),
    "[EOT]": ("<|im_end|>", False),
    "<|im_system|>": ("<|im_start|>", False),
    "<|tool_calls_section_begin|>": ("<tool_call>", True),
    "<|tool_call_begin|>": ("<tool_call>", False),
    "<|tool_call_end|>": ("</tool_call>", True),
    "<|im_middle|>": ("\n", False),
}


def test_the_template_says_what_ends_a_turn() -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|endoftext|>\n{% endfor %}"
    odd = bpe([], CHATML, template=source)
    found = special_map(odd, bpe([], CHATML), {})
    assert told(found)["<|endoftext|>"] == ("<|im_end|>", True)
    assert told(found)["<|im_end|>"] == ("<|im_end|>", False)
    assert next(m.how for m in found if m.target_text == "<|endoftext|>") == "template: turn_end"


def test_unknown_families_are_read_from_their_templates() -> None:
    source = (
        "{% for m in messages %}<@{{ m.role }}><+>{{ m.content }}<.>{% endfor %}"
        "{% if add_generation_prompt %}<@assistant><+>{% endif %}"
    )
    source = source.replace("<@", "<@>").replace("}}>", "}}").replace("assistant>", "assistant")
    target = bpe([], ["<@>", "<+>", "<.>", "<other>"], template=source)
    assert told(special_map(target, bpe([], CHATML), {})) == {
        "<@>": ("<|im_start|>", False),
        "<+>": ("\n", False),
        "<.>": ("<|im_end|>", True),
    }
    no_word = (
        "{% for m in messages %}{{ '<@>' if m.role == 'user' else '<+>' }}{{ m.content }}<.>{% endfor %}"
    )
    no_word += "{% if add_generation_prompt %}<+>{% endif %}"
    target = bpe([], ["<@>", "<+>", "<.>"], template=no_word)
    found = told(special_map(target, bpe([], CHATML), {}))
    assert found["<@>"] == ("<|im_start|>user\n", False)
    assert found["<.>"] == ("<|im_end|>", True)


def test_the_templates_say_of_kimi_what_the_table_says(kimi: Vocab, qwen: Vocab, smol: Vocab) -> None:
    for donor in (qwen, smol):
        found = conversation.side_by_side(conversation.read(kimi), conversation.read(donor))
        assert found == {text: KIMI_FROM_QWEN[text][0] for text in found}
        assert found.keys() == {"<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"}


LOOP = "{% for m in messages %}"
AS_OTHERS_DO = {
    "gemma": LOOP + "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    "llama-3": "<|begin_of_text|>" + LOOP + "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "deepseek": LOOP
    + "{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}<｜User｜>{{ m.content }}"
    "{% else %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜>{% endif %}",
    "mistral": "<s>"
    + LOOP
    + "{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.role == 'system' %}"
    "[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("name", AS_OTHERS_DO)
def test_templates_like_those_in_use_agree_with_the_table(name: str) -> None:
    """What ends a turn, and what begins it: by the template as by the table."""
    plain, written = of_family(name), of_family(name, template=AS_OTHERS_DO[name])
    reading = conversation.read(written)
    assert "turn_end" in FAMILIES[name]["tokens"][reading.ends]
    for other in (of_family("kimi-k2"), of_family("chatml")):
        assert special_map(written, other, {}) == special_map(plain, other, {})
        assert special_map(other, written, {}) == special_map(other, plain, {})
    kimi, chatml = of_family("kimi-k2"), of_family("chatml")
    for target, donor in ((kimi, written), (written, chatml)):
        by_template = conversation.side_by_side(conversation.read(target), conversation.read(donor))
        by_table = told(special_map(target, donor, {}))
        assert len(by_template) >= 1
        assert by_template == {text: by_table[text][0] for text in by_template}


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ raise_exception('no') }}",
        "{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[99].content }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'Quartzite Zebrawood Walnutshell Ivorytower' }}" * 3,
        "{{ 'x' * 999999999 }}",
        "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "",
    ],
)
def test_a_template_that_cannot_be_rendered_changes_nothing(
    source: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kimi, donor = of_family("kimi-k2"), bpe([b"user"], CHATML)
    broken = of_family("kimi-k2", template=source)
    assert special_map(broken, donor, {}) == special_map(kimi, donor, {})
    assert special_map(kimi, bpe([b"user"], CHATML, template=source), {}) == special_map(kimi, donor, {})


def test_a_template_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    special_map(bpe([], ["<x>"], template="{% if %}"), bpe([], CHATML), {})
    assert "a chat template says nothing" in caplog.text
