"""What the rows of METRICS have in common. Each begins with its name, its title and its column."""

from __future__ import annotations

from functools import partial

from llm_bench_fixtures.results.metrics.metric import Direction, Force, Kind, Metric, Tolerance, Unit

NEVER_JUDGED = Tolerance(force=Force.OFF)

timing_row = partial(Metric, unit=Unit.SECONDS, direction=Direction.LOWER_IS_BETTER, kind=Kind.TIMING)
throughput_row = partial(timing_row, unit=Unit.TOKENS_PER_SECOND, direction=Direction.HIGHER_IS_BETTER)
memory_row = partial(Metric, unit=Unit.BYTES, direction=Direction.LOWER_IS_BETTER, kind=Kind.MEMORY)
exact_row = partial(memory_row, kind=Kind.EXACT)
quality_row = partial(Metric, unit=Unit.NONE, direction=Direction.LOWER_IS_BETTER, kind=Kind.QUALITY)
