"""What this machine has: physical cores and free memory."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")


def physical_cores() -> int:
    """Physical cores that this process may use, at least 1; fast ones alone where macOS tells them apart."""
    if sys.platform == "darwin":
        count = _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu")
    elif sys.platform == "win32":
        count = max(1, (os.cpu_count() or 2) // 2)
    else:
        count = _linux_cores()
    return max(1, count or os.cpu_count() or 1)


def _linux_cores() -> int:
    allowed = os.sched_getaffinity(0)
    siblings = set()
    for cpu in allowed:
        try:
            siblings.add((CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip())
        except OSError:
            siblings.add(str(cpu))
    return min(len(siblings), _cpu_quota() or len(siblings))


def _cpu_quota() -> int:
    """CPUs that a container's quota allows, 0 without one."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return 0


def free_memory() -> int:
    """Bytes of main memory that can be had without swapping, 0 when unknown."""
    if sys.platform == "darwin":
        return _sysctl("hw.memsize") * 3 // 4
    if sys.platform == "win32":
        return _windows_memory()
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0
    limit = _cgroup_memory()
    return free if limit is None else min(free, limit)


def peak_memory() -> int | None:
    """The most main memory in bytes that this process had at once, None when unknown."""
    if sys.platform == "win32":
        return None
    try:  # what getrusage says on Linux is at least what the parent process had
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _cgroup_memory() -> int | None:
    """What a container's memory limit leaves, page cache counted as free; None without a limit."""
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0)))
    except (OSError, ValueError):
        return None


def _sysctl(name: str) -> int:
    value, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
    try:
        failed = ctypes.CDLL(None).sysctlbyname(
            name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0
        )
    except (OSError, AttributeError):
        return 0
    return 0 if failed else value.value


class _MemoryStatus(ctypes.Structure):
    """Windows' MEMORYSTATUSEX."""

    _fields_ = (("length", ctypes.c_uint32), ("load", ctypes.c_uint32), ("bytes", ctypes.c_uint64 * 7))


def _windows_memory() -> int:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009 (absent from other systems' type stubs)
    return status.bytes[1] if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else 0
