"""What the kernel tells of this process' memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

STATUS = Path("/proc/self/status")
MAPPINGS = Path("/proc/self/smaps")
MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ (\S{4}) \S+ \S+ (\d+) *(.*)")  # how it may be used, its inode and file


def status_bytes() -> Mapping[str, int]:
    """The sizes in proc(5)'s status by name ("RssAnon", "VmHWM"), in bytes. Empty elsewhere than on Linux."""
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    fields = (line.removesuffix(" kB").partition(":") for line in lines if line.endswith(" kB"))
    return {name: int(kibibytes) * 1024 for name, _, kibibytes in fields}


def library_bytes() -> int | None:
    """Of this process' resident memory, pages of libraries' files: of those that it runs code from. What is mapped of
    other files, such as a model's weights, isn't among them. None where the system doesn't tell."""
    pages: Counter[str] = Counter()
    libraries: set[str] = set()
    file = ""
    try:
        with MAPPINGS.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if found := MAPPING.match(line):
                    file = found[3] if found[2] != "0" else ""  # 0 of what is of no file
                    libraries |= {file} if "x" in found[1] else set()
                elif line.startswith(("Rss:", "Anonymous:")):  # the latter is the process' own copy
                    sign = 1 if line.startswith("Rss:") else -1
                    pages[file] += sign * int(line.split()[1]) * 1024
    except OSError:
        return None
    return sum(pages[name] for name in libraries - {""}) if pages else None
