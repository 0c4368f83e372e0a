from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llm_bench_fixtures.models.artifacts import file_digest
from llm_bench_fixtures.models.backend import installed_versions
from llm_bench_fixtures.models.conversion import COUNTS, TRIAL_VERSION, key_of
from llm_bench_fixtures.models.loading import LoadRequest


def test_a_key_holds_the_weights_the_libraries_the_trial_and_what_is_counted(
    make_request: Callable[..., LoadRequest], tmp_path: Path
) -> None:
    """A library that isn't installed is in none. Bug: conversions kept before there was a trial were never compared."""
    request = make_request()
    versions = installed_versions(("torch",))
    assert versions
    assert key_of(request, ("torch", "no-such-library"), ("blocks", "levels")) == {
        "model": request.source.digest,
        "holds": ", ".join((*COUNTS, "blocks", "levels")),
        "trial": TRIAL_VERSION,
        **versions,
    }
    given = tmp_path / "model.gguf"
    given.write_bytes(b"weights")
    assert key_of(request, (), (), given) == {
        "model": file_digest(given),
        "holds": "weight_bytes, weight_bytes_read, quantized_share",
        "trial": TRIAL_VERSION,
    }
