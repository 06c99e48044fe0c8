"""The Hub, spoken by a small server on 127.0.0.1."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
import huggingface_hub.constants
import numpy as np
import pytest
from hub_server import COMMIT, Hub, serve
from hypothesis import given
from hypothesis import strategies as st

from gguftools import hub as hubfile
from gguftools.errors import GGUFToolsError, HubError, InputError, LoadAborted, NotFound
from gguftools.hub import names as hub_names
from gguftools.hub.names import HubFile, HubRepo
from gguftools.verbs.check import check
from gguftools.verbs.convert import convert


def model(path: Path, tokens: int = 40_000, tensor: int = 1 << 20) -> bytes:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"token{i}" for i in range(tokens)])
    writer.add_tensor("blk.0.weight", np.zeros(tensor, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def test_an_existing_path_wins_over_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "repo").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert hubfile.resolve("org/repo") == Path("org/repo")


@pytest.mark.parametrize("name", ["missing.gguf", "./org/repo", "/no/such/file", "a/b/c", "folder/m.gguf"])
def test_what_can_only_be_a_path_is_not_asked_of_the_hub(name: str) -> None:
    with pytest.raises(NotFound, match="no such file"):
        hubfile.resolve(name)


def test_a_quant_label_finds_its_file(hub: Hub) -> None:
    hub.repos["org/repo"] = {"m-Q4_K_M.gguf": b"1", "m-Q4_K_S.gguf": b"22", "mmproj-Q4_K_M.gguf": b"3"}
    found = hubfile.resolve("org/repo:q4_k_m")
    assert found == HubFile("org/repo", COMMIT, ("m-Q4_K_M.gguf",), (1,))


def test_an_exact_file_name_wins_over_a_label(hub: Hub) -> None:
    hub.repos["org/repo"] = {"Q8_0.gguf": b"1", "a-Q8_0.gguf": b"2", "b/Q8_0.gguf": b"3"}
    found = hubfile.resolve("org/repo:Q8_0.gguf")
    assert isinstance(found, HubFile)
    assert found.files == ("Q8_0.gguf",)


def test_several_matches_are_listed_and_not_guessed(hub: Hub) -> None:
    hub.repos["org/repo"] = {"a-Q8_0.gguf": b"1", "b-Q8_0.gguf": b"2"}
    with pytest.raises(InputError) as caught:
        hubfile.resolve("org/repo:Q8_0")
    assert "a-Q8_0.gguf" in caught.value.why
    assert "b-Q8_0.gguf" in caught.value.why
    with pytest.raises(InputError):
        hubfile.resolve("org/repo")


def test_a_label_does_not_match_the_middle_of_a_longer_one(hub: Hub) -> None:
    hub.repos["org/repo"] = {"m-IQ4_K.gguf": b"1", "m-Q4_K_M.gguf": b"1"}
    with pytest.raises(NotFound, match="labelled 'Q4_K'"):
        hubfile.resolve("org/repo:Q4_K")


def test_a_repo_without_gguf_is_a_checkpoint(hub: Hub) -> None:
    hub.repos["org/repo"] = {"config.json": b"{}", "model.safetensors": b"12345"}
    found = hubfile.resolve("org/repo")
    assert found == HubRepo("org/repo", COMMIT, {"config.json": 2, "model.safetensors": 5})


def test_a_split_model_is_downloaded_whole(hub: Hub) -> None:
    parts = {f"Q4/m-{i:05}-of-00003.gguf": bytes([i]) * 1000 for i in (1, 2, 3)}
    hub.repos["org/repo"] = parts
    seen: list[float] = []
    path = hubfile.download("org/repo:Q4", progress=lambda stage, fraction: seen.append(fraction))
    assert [(path.parent / Path(name).name).read_bytes() for name in parts] == list(parts.values())
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_missing_shard_is_said(hub: Hub) -> None:
    hub.repos["org/repo"] = {"m-00001-of-00003.gguf": b"1", "m-00003-of-00003.gguf": b"1"}
    with pytest.raises(NotFound, match="2 of 3 shards"):
        hubfile.resolve("org/repo")


def test_a_header_costs_a_few_ranges_and_not_the_file(hub: Hub, tmp_path: Path) -> None:
    data = model(tmp_path / "m.gguf", tokens=60_000, tensor=4 << 20)
    hub.repos["org/repo"] = {"m.gguf": data}
    header = hubfile.gguf_header("org/repo")
    assert len(header.keys["tokenizer.ggml.tokens"]) == 60_000  # type: ignore[arg-type]
    assert hub.sent < 3 << 20 < len(data) // 5
    assert all(wanted.startswith("bytes=") for wanted in hub.ranges)


def test_a_download_that_broke_off_goes_on_by_itself(hub: Hub, tmp_path: Path) -> None:
    data = model(tmp_path / "m.gguf")
    hub.repos["org/repo"] = {"m.gguf": data}
    hub.cut_after = 2 << 20
    path = hubfile.download("org/repo")
    assert path.read_bytes() == data
    assert hub.sent < len(data) + (1 << 16)


def test_a_stopped_download_is_resumed_by_the_next_call(hub: Hub, tmp_path: Path) -> None:
    data = model(tmp_path / "m.gguf")
    hub.repos["org/repo"] = {"m.gguf": data}
    with pytest.raises(LoadAborted):
        hubfile.download("org/repo", progress=lambda _stage, fraction: fraction < 0.4)
    hub.ranges.clear()
    path = hubfile.download("org/repo")
    assert path.read_bytes() == data
    assert int(hub.ranges[0].removeprefix("bytes=").partition("-")[0]) > len(data) // 4
    assert path.is_relative_to(tmp_path / "cache" / "models--org--repo" / "snapshots" / COMMIT)


def test_a_cached_model_is_found_offline_and_costs_nothing(hub: Hub) -> None:
    hub.repos["org/repo"] = {"m-Q8_0.gguf": b"x" * 100}
    path = hubfile.download("org/repo:Q8_0")
    hub.requests.clear()
    assert hubfile.download("org/repo:Q8_0", offline=True) == path
    assert not hub.requests
    with pytest.raises(NotFound, match="not in the cache"):
        hubfile.download("org/other", offline=True)


@pytest.mark.parametrize("name", ["org/repo@v1.0", "org/repo@feature/x", f"org/repo@{COMMIT}"])
def test_a_revision_is_found_offline_and_is_not_taken_for_main(hub: Hub, name: str) -> None:
    hub.repos["org/repo"] = {"m.gguf": b"x" * 100}
    path = hubfile.download(name)
    hub.requests.clear()
    assert hubfile.download(name, offline=True) == path
    with pytest.raises(NotFound, match="not in the cache"):
        hubfile.download("org/repo", offline=True)
    assert not hub.requests


def test_a_cached_model_is_judged_without_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repos["org/repo"] = {"m.gguf": model(tmp_path / "m.gguf", tokens=100, tensor=100)}
    hubfile.download("org/repo")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert len(hubfile.gguf_header("org/repo").keys["tokenizer.ggml.tokens"]) == 100  # type: ignore[arg-type]
    assert hubfile.download("org/repo").is_file()
    assert not hub.requests


def test_a_damaged_download_is_refused_and_removed(hub: Hub, tmp_path: Path) -> None:
    hub.repos["org/repo"] = {"m.gguf": b"x" * 100}
    hub.etag = hashlib.sha256(b"y" * 100).hexdigest()
    with pytest.raises(HubError, match="damaged"):
        hubfile.download("org/repo")
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.stat().st_size]


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (401, "GatedRepo", HubError, "gated"),
        (403, "GatedRepo", HubError, "gated"),
        (403, "", HubError, "gated"),
        (401, "", NotFound, "private"),
        (404, "RepoNotFound", NotFound, "does not exist"),
        (429, "", HubError, "run again in 7 seconds"),
        (500, "", HubError, "answered 500"),
    ],
)
def test_a_refusal_says_what_to_do(
    hub: Hub, status: int, code: str, kind: type[Exception], words: str
) -> None:
    hub.refuse["org/repo"] = (status, code)
    with pytest.raises(kind) as caught:
        hubfile.resolve("org/repo")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_no_network_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError) as caught:
        hubfile.resolve("org/repo")
    assert "--offline" in caught.value.hint


def test_small_files_come_whole_and_missing_ones_are_left_out(hub: Hub) -> None:
    hub.repos["org/repo"] = {"config.json": b"{}", "a/b.txt": b"hello"}
    found = hubfile.repo_files("org/repo", ["config.json", "a/b.txt", "none.json"])
    assert found == {"config.json": b"{}", "a/b.txt": b"hello"}
    with pytest.raises(NotFound, match=r"none\.json"):
        hubfile.repo_files("org/repo", ["none.json"], optional=False)
    assert hubfile.read_range("org/repo", "a/b.txt", 1, 3) == b"ell"
    assert hubfile.read_range("org/repo", "a/b.txt", 9, 3) == b""


@pytest.mark.parametrize(
    "name", ["../evil.gguf", "a/../../evil.gguf", "/etc/evil.gguf", "C:\\evil.gguf", "..\\e.gguf"]
)
def test_a_file_name_never_leads_out_of_the_cache(hub: Hub, tmp_path: Path, name: str) -> None:
    hub.repos["org/repo"] = {name: b"evil", "config.json": b"{}"}
    assert isinstance(hubfile.resolve("org/repo"), HubRepo)
    with pytest.raises(HubError, match="refuses"):
        hubfile.download(HubFile("org/repo", COMMIT, (name,), (4,)))
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("etag", ["../../evil", "a/b", ""])
def test_an_etag_never_leads_out_of_the_cache(hub: Hub, tmp_path: Path, etag: str) -> None:
    hub.repos["org/repo"] = {"m.gguf": b"evil"}
    hub.etag = etag or " "
    with pytest.raises(HubError):
        hubfile.download("org/repo")
    assert not list(tmp_path.rglob("*evil*"))


@given(st.text(min_size=1))
def test_a_safe_name_stays_inside_its_folder(name: str) -> None:
    folder = Path("/folder")
    if hub_names.is_safe(name):
        joined = Path(*(p for p in (folder / name).parts if p != "."))
        assert ".." not in joined.parts
        assert joined.is_relative_to(folder)


@given(st.text())
def test_any_text_is_a_name_or_not_and_never_a_failure(name: str) -> None:
    parsed = hub_names.parse(name)
    assert parsed is None or ".." not in parsed.repo


def test_a_token_goes_to_the_hub_and_not_to_where_it_redirects(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serve() as store:
        hub.repos["org/repo"] = store.repos["org/repo"] = {"m.gguf": b"x" * 1000}
        hub.redirect = store.url
        assert hubfile.read_range("org/repo", "m.gguf", 10, 5) == b"xxxxx"
        assert hubfile.download("org/repo").read_bytes() == b"x" * 1000
        assert set(hub.authorization) == {"Bearer hf_secret"}
        assert set(store.authorization) == {None}


def test_a_system_without_symlinks_gets_the_file_itself(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.are_symlinks_supported", lambda _folder: False)
    hub.repos["org/repo"] = {"m.gguf": b"x" * 1000}
    path = hubfile.download("org/repo")
    assert path.read_bytes() == b"x" * 1000
    assert not path.is_symlink()
    assert hubfile.download("org/repo", offline=True) == path


@pytest.mark.parametrize(
    "listing",
    [
        b"<html>log in</html>",
        b"",
        b"[]",
        b"{}",
        b'{"id": "org/repo", "sha": "main"}',
        b'{"id": "org/repo", "sha": "%b", "siblings": 3}' % COMMIT.encode(),
        b'{"id": "org/repo", "sha": "%b", "siblings": [3]}' % COMMIT.encode(),
        b'{"id": "org/repo", "sha": "%b", "siblings": [{"rfilename": "m.gguf", "size": "big"}]}'
        % COMMIT.encode(),
        b'{"id": "org/repo", "sha": "%b", "siblings": [{"rfilename": "../../m.gguf", "size": 3}]}'
        % COMMIT.encode(),
        b"\xff\xfe" * 40,
        b"[" * 100_000,
    ],
)
def test_a_server_that_answers_nonsense_is_an_error_in_three_parts(
    hub: Hub, listing: bytes, tmp_path: Path
) -> None:
    hub.repos["org/repo"] = {"m.gguf": b"<html>"}
    hub.listing = listing
    reads = (hubfile.gguf_header, hubfile.download, lambda name: convert(name, tmp_path / "m.gguf"), check)
    for read in reads:
        with pytest.raises(GGUFToolsError) as caught:
            read("org/repo")
        assert caught.value.what
        assert caught.value.why
