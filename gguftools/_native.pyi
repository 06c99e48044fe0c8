# ---- scan: GGUF headers (csrc/scan.h) ----
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

Range = tuple[int, int]

class ScanError(Exception):
    code: int
    at: int
    needed: int
    number: int

def scan_header(
    data: Buffer,
) -> tuple[
    int, list[tuple[Range, int, bool, int, Range]], list[tuple[Range, tuple[int, ...], int, int]], int
]: ...
def string_starts(data: Buffer, starts: NDArray[Any]) -> None: ...
def find_merges(
    data: Buffer, starts: NDArray[Any], table: NDArray[Any], split: NDArray[Any]
) -> tuple[int, int]: ...

# ---- end of scan ----
