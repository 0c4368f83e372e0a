"""Tells the package's metadata where its repository is: an index shows the README on a page of its own, from which a
relative link leads nowhere.

The repository's address stands in no file of it. The workflow of a release gives it (LLM_BENCH_REPOSITORY, and the tag
as LLM_BENCH_TAG), else it is that of git's remote `origin`. Without either, links stay relative and there are no URLs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
ORIGIN = re.compile(r"(?:https://(?:[^@/]*@)?|(?:ssh://)?git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?")
URLS = {
    "Documentation": "blob/{ref}/docs/index.md",
    "Changelog": "blob/{ref}/CHANGELOG.md",
    "Issues": "issues",
}


def address_of(root: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The repository's page; empty where nothing tells it."""
    if given := environment.get("LLM_BENCH_REPOSITORY"):
        return given
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:  # there is no git
        return ""
    found = ORIGIN.fullmatch(done.stdout.strip())
    return f"https://{found[1]}/{found[2]}" if found else ""


def with_absolute_links(text: str, address: str, ref: str) -> str:
    """Markdown whose relative links lead into the repository, pictures to the files themselves."""

    def absolute(link: re.Match[str]) -> str:
        mark, words, target = link.groups()
        return f"{mark}[{words}]({address}/{'raw' if mark else 'blob'}/{ref}/{target})"

    return LINK.sub(absolute, text) if address else text


def urls_of(address: str, ref: str) -> dict[str, str]:
    if not address:
        return {}
    return {"Repository": address, **{name: f"{address}/{path.format(ref=ref)}" for name, path in URLS.items()}}


class RepositoryHook(MetadataHookInterface):
    """Called by hatchling."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        address, ref = address_of(root), os.environ.get("LLM_BENCH_TAG") or "HEAD"  # the default branch
        text = with_absolute_links((root / "README.md").read_text(encoding="utf-8"), address, ref)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls_of(address, ref)
