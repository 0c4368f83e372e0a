"""What two runs must share for their numbers to be comparable."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass

from llm_bench_fixtures.results.record import Provenance

LIBRARIES = ("torch", "transformers", "optimum", "optimum-onnx", "onnxruntime", "bitsandbytes")  # that run models


@dataclass(frozen=True)
class Fingerprint:
    """Each field is a text for people, the same for two runs exactly where they agree in it."""

    machine: str
    libraries: str
    model: str
    corpus: str

    @property
    def digest(self) -> str:
        """Eight hex digits: a short name for it."""
        return hashlib.sha256("\0".join(astuple(self)).encode(errors="surrogatepass")).hexdigest()[:8]


def fingerprint_of(provenance: Provenance) -> Fingerprint:
    versions = {**provenance.libraries, "python": provenance.python}
    return Fingerprint(
        machine=f"{provenance.hardware}, {provenance.device}, {provenance.threads} threads, {provenance.platform}",
        libraries=", ".join(f"{name} {versions[name]}" for name in ("python", *LIBRARIES) if name in versions),
        model=f"{provenance.model}, random weights" if provenance.random_weights else provenance.model,
        corpus=provenance.corpus,
    )
