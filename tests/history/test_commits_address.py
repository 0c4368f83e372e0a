"""Where the commits of a repository are, by its remote."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_bench_fixtures.history import git


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/o/r.git", "https://github.com/o/r/commit/"),
        ("https://user:secret@git.example.org/group/sub/r", "https://git.example.org/group/sub/r/commit/"),
        ("git@github.com:o/r.git", "https://github.com/o/r/commit/"),
        ("ssh://git@git.example.org:2222/o/r", "https://git.example.org/o/r/commit/"),
        ("git@bitbucket.org:o/r.git", "https://bitbucket.org/o/r/commits/"),
        ("/srv/git/r.git", ""),
        ("../r", ""),
        ("file:///srv/r.git", ""),
        ('https://x.org/"><script>', ""),
        (None, ""),
    ],
)
def test_the_address_is_of_a_server_and_has_no_secret(
    remote: str | None, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git, "git_output", lambda *_: remote)
    assert git.commits_address(Path()) == address
