"""The door to llama-cpp-python: what happens when, and what is refused with a clear error."""

from __future__ import annotations

import ctypes
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_session

from gguftools import _native, libllama
from gguftools.errors import AbiMismatch, Closed, GrammarError, InputError, LoadError, Unsupported
from gguftools.header import read_header
from gguftools.libllama import compat, devices
from gguftools.session import sampling

pytestmark = pytest.mark.usefixtures("real_api")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_session.write(tmp_path_factory.mktemp("libllama") / "tiny.gguf")


@pytest.fixture(scope="module")
def weights(tiny: Path) -> libllama.Weights:
    return libllama.load(tiny, devices.placement(0), "auto", None)


def test_importing_everything_starts_no_backend_no_thread_and_writes_no_environment() -> None:
    code = (
        "import os, sys, threading\n"
        "before = dict(os.environ)\n"
        "import gguftools\n"
        "[getattr(gguftools, name) for name in ('Model', 'Session', 'Stream', 'Token', 'Stats', 'Result')]\n"
        "assert 'llama_cpp' not in sys.modules\n"
        "assert dict(os.environ) == before and threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


def test_the_installed_structs_are_those_of_the_extension() -> None:
    compat.check_abi(compat.library(), _native.STRUCTS, compat.version())


@pytest.mark.parametrize("change", [{"sizeof": 1}, {"pos": 3}, {"a_field_of_tomorrow": 8}])
def test_a_struct_that_differs_is_an_error_that_names_both_versions(change: dict[str, int]) -> None:
    wrong = {"llama_batch": {**_native.STRUCTS["llama_batch"], **change}}
    with pytest.raises(AbiMismatch, match=r"gguftools .* does not fit llama-cpp-python 9\.9\.9"):
        compat.check_abi(compat.library(), wrong, "9.9.9")


def test_a_function_that_the_library_lacks_is_an_abi_mismatch() -> None:
    with pytest.raises(AbiMismatch, match="llama_of_tomorrow"):
        compat.address(compat.library(), "llama", "llama_of_tomorrow")


def test_every_function_of_the_table_has_an_address_of_its_own() -> None:
    lib = compat.library()
    found = [compat.address(lib, *entry) for entry in _native.API]
    assert len(set(found)) == len(found)
    assert _native.has_api()


def test_llama_cpps_logs_go_to_logging_line_by_line(
    tiny: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "gguftools.llama")
    libllama.load(tiny, devices.placement(0), "auto", None).close()
    lines = [record for record in caplog.records if record.name == "gguftools.llama"]
    assert any("general.architecture" in record.message for record in lines)
    assert not any("\n" in record.message for record in lines)
    assert {record.levelname for record in lines} >= {"INFO"}
    assert not any(record.levelno >= logging.ERROR for record in lines)
    assert capfd.readouterr() == ("", "")


def test_pieces_of_log_lines_are_joined() -> None:
    log = compat._Log()
    log.write(3, b"half ", None)
    log.write(5, b"a line\n", None)
    assert list(log.complaints) == ["half a line"]


def test_a_file_that_libllama_refuses_is_a_load_error_with_its_own_words(tmp_path: Path) -> None:
    broken = tiny_session.write(tmp_path / "broken.gguf", arch="qwen3moe", n_expert=4)
    broken.write_bytes(broken.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_X.weight"))
    with pytest.raises(LoadError, match=r"attn_q"):
        libllama.load(broken, devices.placement(0), "auto", None)


def test_text_is_tokenized_and_pieces_give_it_back(weights: libllama.Weights) -> None:
    text = "the 漢字 thin\n"
    ids = weights.tokenize(text)
    assert b"".join(weights.piece(token) for token in ids) == text.encode()
    assert len(ids) < len(text.encode())


def test_control_tokens_are_parsed_and_shown_only_when_asked_for(weights: libllama.Weights) -> None:
    assert weights.tokenize("<|im_end|>", parse_special=True) == [260]
    assert len(weights.tokenize("<|im_end|>")) > 5
    assert weights.piece(260) == b""
    assert weights.piece(260, special=True) == b"<|im_end|>"


def test_lone_surrogates_in_a_text_do_no_harm(weights: libllama.Weights) -> None:
    assert weights.tokenize("a\ud800b")


def test_end_tokens_are_libllamas_own(weights: libllama.Weights) -> None:
    lib = compat.library()
    eog = weights.eog()
    assert [i for i, flag in enumerate(eog) if flag] == [
        i for i in range(weights.n_vocab) if lib.llama_vocab_is_eog(weights.vocab, i)
    ]
    assert eog[260]


def test_devices_have_names_and_memory() -> None:
    found = devices.devices()
    assert any(device.kind == "cpu" and device.memory_total > 0 for device in found)
    assert "CPU" in devices.buffer_types()


@pytest.mark.parametrize("layers", ["all", 1])
def test_gpu_layers_without_a_gpu_say_how_to_get_a_build_that_can(layers: object) -> None:
    if any(device.is_gpu for device in devices.devices()):
        pytest.skip("this machine has a GPU")
    with pytest.raises(Unsupported, match=r"no GPU backend(?s:.*)CMAKE_ARGS.*GGML_CUDA"):
        devices.placement(layers)  # type: ignore[arg-type]
    assert devices.placement(None).gpu_layers == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"names": ["CUDA7"]}, Unsupported),
        ({"override_tensor": ["exps=CUDA7"]}, Unsupported),
        ({"override_tensor": ["(=CPU"]}, InputError),
        ({"override_tensor": ["CPU"]}, InputError),
        ({"override_tensor": {f"a{i}": "CPU" for i in range(4096)}}, InputError),
        ({"tensor_split": [1.0] * 17}, InputError),
        ({"tensor_split": [-1.0]}, InputError),
        ({"n_cpu_moe": -1}, InputError),
    ],
)
def test_a_placement_that_cannot_be_is_refused(options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        devices.placement(0, **options)  # type: ignore[arg-type]


def test_an_unknown_device_is_answered_with_those_that_are_there() -> None:
    with pytest.raises(Unsupported, match="CPU"):
        devices.placement(None, ["CUDA7"])


def test_experts_of_the_first_layers_are_matched_and_nothing_else() -> None:
    import re

    (first, _), (second, _) = devices.placement(0, n_cpu_moe=2).overrides
    names = [f"blk.{i}.ffn_{kind}.weight" for i in (0, 1, 10) for kind in ("up_exps", "gate_inp", "up_shexp")]
    assert [name for name in names if re.search(first, name)] == ["blk.0.ffn_up_exps.weight"]
    assert [name for name in names if re.search(second, name)] == ["blk.1.ffn_up_exps.weight"]


BAD_GRAMMARS = ["", "root ::", 'other ::= "a"', "root ::= undefined", 'root ::= root "a"', "\0"]


@pytest.mark.parametrize("source", BAD_GRAMMARS)
def test_a_grammar_that_is_not_accepted_is_a_grammar_error(weights: libllama.Weights, source: str) -> None:
    with pytest.raises(GrammarError):
        libllama.grammar(weights, source)


def test_a_context_that_cannot_be_is_refused(weights: libllama.Weights) -> None:
    for wrong in (
        {"cache_type_k": "q9"},
        {"cache_type_v": "q8_0", "flash_attn": False},
        {"n_ctx": 0},
    ):
        with pytest.raises(InputError):
            libllama.Context(weights, libllama.ContextParams(**{"n_ctx": 64, "threads": 1, **wrong}))


def test_weights_that_were_closed_say_so(tiny: Path) -> None:
    loaded = libllama.load(tiny, devices.placement(0), "none", None)
    loaded.close()
    loaded.close()
    for use in (lambda: loaded.handle, lambda: loaded.tokenize("a"), lambda: loaded.piece(1)):
        with pytest.raises(Closed):
            use()


GRAMMAR = 'root ::= "a"'


def chain_names(weights: libllama.Weights, **values: object) -> list[str]:
    made = sampling.chain(sampling.Sampling().using(values, "test"), 1, weights, 64, GRAMMAR)
    assert made.sampler is not None
    lib = compat.library()
    handle = ctypes.cast(made.sampler.handle, lib.llama_sampler_p_ctypes) if made.sampler.handle else None
    count = lib.llama_sampler_chain_n(handle) if handle else 0
    stages = [lib.llama_sampler_chain_get(handle, i) for i in range(count)]
    return [lib.llama_sampler_name(stage).decode() for stage in stages]


def test_beside_a_grammar_the_chain_has_llama_cpps_order_and_leaves_out_what_is_off(
    weights: libllama.Weights,
) -> None:
    assert chain_names(weights) == ["top-k", "top-p", "temp", "dist"]
    full = chain_names(weights, repeat_penalty=1.1, min_p=0.1)
    assert full == ["penalties", "top-k", "top-p", "min-p", "temp", "dist"]
    assert chain_names(weights, top_k=0, top_p=1.0) == ["temp", "dist"]
    assert chain_names(weights, temperature=0) == []
    assert chain_names(weights, temperature=0, presence_penalty=1.0) == ["penalties", "greedy"]


def test_without_a_grammar_the_engine_draws_by_itself(weights: libllama.Weights) -> None:
    values = sampling.Sampling().using({"repeat_last_n": 8, "presence_penalty": 0.5, "top_k": 10**6}, "t")
    made = sampling.chain(values, 1, weights, 64, None)
    assert made.sampler is None
    assert made.values == (0.8, 0, 0.95, 0.0, 1.0, 0.0, 0.5)
    assert made.n_penalty == 8


def test_preselection_is_asked_for_only_when_top_k_comes_first(weights: libllama.Weights) -> None:
    def preselect(**values: object) -> int:
        return sampling.chain(sampling.Sampling().using(values, "t"), 1, weights, 64, GRAMMAR).preselect

    assert preselect() == 40
    assert preselect(repeat_penalty=1.1) == 0
    assert preselect(top_k=0) == 0
    assert preselect(top_k=10**6) == 0
    assert preselect(temperature=0) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"temperature": True},
        {"top_k": 1.5},
        {"top_k": -1},
        {"top_p": 2},
        {"min_p": "x"},
        {"repeat_penalty": 0},
        {"repeat_last_n": -2},
    ],
)
def test_a_sampling_value_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        sampling.Sampling().using(wrong, "argument")


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, 1.5, True])
def test_a_senseless_seed_is_refused(seed: object) -> None:
    with pytest.raises(InputError):
        sampling.check_seed(seed)  # type: ignore[arg-type]


def test_sampling_comes_from_the_call_then_the_file_then_the_family_then_the_defaults(tmp_path: Path) -> None:
    keys = {"general.name": "Kimi K2 Instruct", "general.sampling.temp": 0.5, "general.sampling.top_k": 7}
    header = read_header(tiny_session.write(tmp_path / "a.gguf", keys=keys))
    found = sampling.defaults(header).using({"top_k": 9}, "argument")
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.5, 9, 0.95, 0.01)
    assert found.source == (
        "temperature 0.5 (GGUF), top_k 9 (argument), top_p 0.95 (default), "
        "min_p 0.01 (family Kimi-K2-Instruct)"
    )


@pytest.mark.parametrize(
    ("name", "temperature"),
    [("Kimi-K2-Thinking", 1.0), ("Kimi K2.5", 1.0), ("Kimi-K2-Instruct-0905", 0.6), ("Llama", 0.8)],
)
def test_a_family_is_known_by_its_name(tmp_path: Path, name: str, temperature: float) -> None:
    header = read_header(tiny_session.write(tmp_path / "m.gguf", keys={"general.name": name}))
    assert sampling.defaults(header).temperature == temperature


def test_a_senseless_value_in_a_file_is_passed_over(tmp_path: Path) -> None:
    header = read_header(tiny_session.write(tmp_path / "m.gguf", keys={"general.sampling.temp": -3.0}))
    assert sampling.defaults(header).temperature == 0.8


def test_a_llama_object_is_known_by_its_class_alone() -> None:
    assert not libllama.is_llama("a.gguf")
    assert not libllama.is_llama(SimpleNamespace(model_path="a.gguf"))


def test_an_override_row_is_laid_out_as_llama_cpp_has_it() -> None:
    assert ctypes.sizeof(devices._Override) == 2 * ctypes.sizeof(ctypes.c_void_p)


def test_an_older_llama_cpp_python_is_an_abi_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "_ready", None)
    monkeypatch.setattr(compat, "NEWEST", ("llama_of_tomorrow",))
    with pytest.raises(AbiMismatch, match="llama_of_tomorrow"):
        compat.library()


def test_without_llama_cpp_python_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "_ready", None)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(Unsupported, match="pip install"):
        compat.library()
