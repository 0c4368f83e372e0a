"""What the kernel tells of this process' memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STATUS = Path("/proc/self/status")


def status_bytes() -> Mapping[str, int]:
    """The sizes in proc(5)'s status by name ("RssAnon", "VmHWM"), in bytes. Empty elsewhere than on Linux."""
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    fields = (line.removesuffix(" kB").partition(":") for line in lines if line.endswith(" kB"))
    return {name: int(kibibytes) * 1024 for name, _, kibibytes in fields}


def mapped_bytes() -> int | None:
    """Of this process' resident memory, pages of mapped files. None where the system doesn't tell."""
    return status_bytes().get("RssFile")
