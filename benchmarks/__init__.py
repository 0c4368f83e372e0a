"""The ready suite: one file for each scenario. The installed package holds it as `llm_bench_fixtures.benchmarks`."""
