"""How much slower the machine was in one run than in another, by the probes of both."""

from __future__ import annotations

from collections.abc import Sequence

from llm_bench_fixtures.results.probe import probe_level_s


def machine_slowdown(
    head_probe_s: Sequence[tuple[float, float]], base_probe_s: Sequence[tuple[float, float]]
) -> float | None:
    """How many times as long the same work took when `head` was measured as when `base` was.

    head's seconds divided by it are what they would be at base's speed of the machine, as far as the two kinds of work
    stand for the model's. None where either has no probe.
    """
    head_s, base_s = probe_level_s(head_probe_s), probe_level_s(base_probe_s)
    return head_s / base_s if head_s and base_s else None
