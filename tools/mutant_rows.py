"""The faults that tools/mutants.py plants, in every room of the package, and the tests that have to catch each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One fault."""

    name: str
    file: str
    """Below the package's folder."""
    code: str
    """Occurs exactly once in the file."""
    fault: str
    """Code in its place."""
    tests: str
    """A file or folder of tests, one of which has to fail."""
    only: str = ""
    """Narrows the tests to those with this in their name, as pytest's -k does; for those that take long."""


GATE, OPTIONS = "tests/plugin/test_plugin_gate.py", "tests/plugin/test_plugin_options.py"

MUTANTS = (
    # The gate and the options as they are typed
    Mutant(
        "gate-status",
        "plugin/gating.py",
        "        session.exitstatus = decision.status",
        "        session.exitstatus = pytest.ExitCode.OK",
        GATE,
        "a_first_run",
    ),
    Mutant(
        "gate-hides-pytests-status",
        "plugin/gating.py",
        "    if session.exitstatus == pytest.ExitCode.OK:",
        "    if decision.status:",
        GATE,
        "keep_pytests_own",
    ),
    Mutant(
        "gate-keeps-regressed",
        "plugin/gating.py",
        "regressed=decision.status is ExitStatus.REGRESSED",
        "regressed=False",
        GATE,
        "grown_memory",
    ),
    Mutant(
        "gate-loses-reason",
        "plugin/gating.py",
        "for reason in config.stash[BASELINE].passed_over]",
        "for reason in ()]",
        GATE,
        "a_failed_run",
    ),
    Mutant(
        "gate-forgets-junit",
        "plugin/gating.py",
        "    _add_to_junit(config, decision)\n    summary",
        "    summary",
        GATE,
        "a_slowdown_turns",
    ),
    Mutant(
        "failed-run-is-whole",
        "plugin/finish.py",
        "failed_tests=session.testsfailed",
        "failed_tests=0",
        GATE,
        "a_failed_run",
    ),
    Mutant(
        "stopped-run-is-whole",
        "plugin/finish.py",
        "interrupted=is_hurried or was_stopped",
        "interrupted=is_hurried",
        GATE,
        "was_stopped",
    ),
    Mutant(
        "selection-is-not-kept",
        "plugin/stash.py",
        '        "-k": config.getoption("keyword", ""),\n',
        "",
        GATE,
        "vanished_test",
    ),
    Mutant(
        "marker-is-ignored", "plugin/items.py", "    return given | {", "    return {} | {", GATE, "a_marker_allows"
    ),
    Mutant(
        "ini-wins",
        "plugin/stash.py",
        "return written if typed is None else typed",
        "return typed if written is None else written",
        OPTIONS,
        "command_line_wins",
    ),
    Mutant(
        "reference-is-fixed",
        "plugin/stash.py",
        "        reference.id,\n",
        '        "fp32",\n',
        OPTIONS,
        "the_reference_is",
    ),
    Mutant(
        "no-warmup",
        "session/measuring.py",
        "            settings.warmup_rounds,\n",
        "            1,\n",
        OPTIONS,
        "warmup_rounds",
    ),
    Mutant(
        "windows-are-ignored",
        "measure/windows.py",
        "WindowPlan(settings.windows, settings.window, settings.stride)",
        "WindowPlan(settings.windows, 0, 0)",
        OPTIONS,
        "corpus_window",
    ),
    Mutant(
        "random-weights-are-scored",
        "session/scoring.py",
        "if self._setup.source.random_weights or ",
        "if ",
        OPTIONS,
        "dummy_weights",
    ),
    Mutant(
        "models-ini-is-taken",
        "plugin/stash.py",
        "if taken and (config",
        "if False and (config",
        OPTIONS,
        "a_models_folder",
    ),
    # What the docs say of the code
    Mutant(
        "docs-of-a-default",
        "options/table.py",
        "least number of timed rounds",
        "number of timed rounds",
        "tests/test_docs.py",
        "up_to_date",
    ),
    Mutant(
        "docs-of-a-path",
        "results/storage.py",
        "which docs/reference/results.md describes",
        "which docs/reference/saved-results.md describes",
        "tests/test_docs.py",
        "docs_path",
    ),
    Mutant(
        "docs-of-a-variant",
        "models/backends/torch.py",
        'Variant("autocast-bf16",',
        'Variant("autocast-bfloat16",',
        "tests/test_docs.py",
        "a_variant",
    ),
    Mutant(
        "docs-of-a-phase",
        "progress.py",
        'COUNTING = "counting"',
        'COUNTING = "tallying"',
        "tests/test_docs.py",
        "each_phase",
    ),
    # The plugin's other tests, and the command line
    Mutant(
        "skip-without-reason",
        "session/loader.py",
        "status=Status.SKIPPED, reason=str(error)",
        'status=Status.SKIPPED, reason=""',
        "tests/plugin/test_plugin_loading.py",
    ),
    Mutant(
        "skip-becomes-silent",
        "plugin/bench_hooks.py",
        '    if report.outcome != "passed" and',
        '    if report.outcome == "failed" and',
        "tests/plugin/test_plugin_loading.py",
    ),
    Mutant(
        "command-status",
        "cli/gate.py",
        "    return decision.status\n",
        "    return 0\n",
        "tests/cli/test_gate_commands.py",
    ),
    Mutant("pair-status", "cli/pair.py", "    return result.status\n", "    return 0\n", "tests/cli/test_pair.py"),
    # The rooms by their own tests
    Mutant(
        "answer-pools-without-gain",
        "statistics/pooling.py",
        "math.sqrt(rounds.variance) / len(ratios)",
        "math.sqrt(rounds.variance)",
        "tests/statistics/test_pooling.py",
    ),
    Mutant(
        "drift-pools-without-gain",
        "statistics/pooling.py",
        "sum(ratio.drift.variance for ratio in ratios) / len(ratios) ** 2",
        "sum(ratio.drift.variance for ratio in ratios) / len(ratios)",
        "tests/statistics/test_drift.py",
    ),
    Mutant(
        "drift-counts-rounds-twice",
        "statistics/pooling.py",
        "squares - fmean(",
        "squares - 0 * fmean(",
        "tests/statistics/test_drift.py",
    ),
    Mutant(
        "report-slowness-inverted",
        "report/words/answer.py",
        "1 - one.found.ratio",
        "one.found.ratio",
        "tests/report/words/test_answer_words.py",
    ),
    Mutant(
        "answer-drops-what-wins-in-batches",
        "answer/picks.py",
        "in_batches is not None and in_batches.is_faster",
        "in_batches is None",
        "tests/report/words/test_answer_words.py",
    ),
    Mutant(
        "suite-is-not-the-installed-one",
        "suite.py",
        "if PACKAGED.is_dir():",
        "if not PACKAGED.is_dir():",
        "tests/test_suite.py",
    ),
    Mutant(
        "report-tone-swapped",
        "report/tables/by_variant.py",
        "Tone.WORSE if found.low > 1 else Tone.BETTER",
        "Tone.BETTER if found.low > 1 else Tone.WORSE",
        "tests/report/tables/test_short_table.py",
    ),
    Mutant(
        "pair-ignores-direction",
        "paired/statistics.py",
        "worse = 1 if metric.direction is Direction.LOWER_IS_BETTER else -1",
        "worse = 1",
        "tests/paired/test_statistics.py",
    ),
    Mutant(
        "pair-spends-twice",
        "paired/sequential.py",
        "return ALPHA * share_of_look(number)",
        "return ALPHA",
        "tests/paired/test_sequential.py",
        "spend_alpha",
    ),
    Mutant(
        "verdict-ignores-direction",
        "gate/verdicts.py",
        "head < base if direction is Direction.HIGHER_IS_BETTER else head > base",
        "head > base",
        "tests/gate/test_verdicts.py",
    ),
    Mutant(
        "quality-is-not-paired",
        "gate/margins.py",
        "statistics.stdev(after - before for before, after in zip(base, head, strict=True))",
        "math.hypot(statistics.stdev(base), statistics.stdev(head))",
        "tests/gate/test_margins.py",
    ),
    Mutant(
        "slowdown-inverted",
        "gate/margins.py",
        "head_s / base_s if",
        "base_s / head_s if",
        "tests/gate/test_margins.py",
    ),
    Mutant(
        "run-is-its-own-baseline",
        "history/storage.py",
        "before is None or run.started < before)",
        "before is None or run.started <= before)",
        "tests/cli/test_gate_commands.py",
    ),
    Mutant(
        "other-commit-is-the-same-cell",
        "sweep/plan.py",
        "msgspec.json.encode([__version__, state, asdict(self)]",
        "msgspec.json.encode([__version__, asdict(self)]",
        "tests/sweep/test_kept_cells.py",
    ),
    Mutant(
        "other-corpus-is-judged",
        "history/together.py",
        '"corpus": frozenset({Kind.QUALITY})',
        '"corpus": frozenset()',
        "tests/gate/test_comparison.py",
    ),
    Mutant(
        "time-is-not-spent",
        "session/measuring.py",
        "self._left_s = max(self._left_s - seconds, 0.0)",
        "self._left_s = max(self._left_s, 0.0)",
        "tests/session/test_budget.py",
    ),
    Mutant(
        "crowded-blocks-count",
        "session/blocks.py",
        "self._crowding(number) <= CROWDED_SHARE}",
        "self._crowding(number) <= 1.0}",
        "tests/session/test_blocks.py",
    ),
    Mutant(
        "cold-steps-count",
        "measure/timing.py",
        "steps_s[first : first + cold] = [fmean(warm)] * cold",
        "steps_s[first : first + cold] = slice_s[:cold]",
        "tests/measure/test_timing.py",
    ),
    Mutant(
        "blocks-are-not-shared",
        "session/blocks.py",
        "for number, done in rounds.items() if number in base}",
        "for number, done in rounds.items()}",
        "tests/session/test_blocks.py",
    ),
    Mutant(
        "interval-too-narrow",
        "statistics/spread.py",
        "stdtrit(freedom, (1 + confidence) / 2)",
        "stdtrit(freedom, confidence)",
        "tests/statistics/test_spread.py",
    ),
    Mutant(
        "unlikely-scatter-borrows",
        "statistics/shrinkage.py",
        "borrowed = min(likeness * prior.freedom,",
        "borrowed = min(prior.freedom,",
        "tests/statistics/test_ratio.py",
    ),
    Mutant(
        "speedup-inverted",
        "statistics/ratio.py",
        "math.log(over / of)",
        "math.log(of / over)",
        "tests/statistics/test_ratio.py",
    ),
    Mutant(
        "first-token-is-decoded",
        "results/prefill_decode.py",
        "rows * (len(tokens) - 1) for rows",
        "rows * len(tokens) for rows",
        "tests/results/test_metrics.py",
    ),
    Mutant(
        "milliseconds-are-seconds",
        "results/metrics/latency.py",
        "record.workload.new_tokens * 1000",
        "record.workload.new_tokens",
        "tests/results/test_metrics.py",
    ),
    Mutant(
        "events-in-milliseconds",
        "measure/timing.py",
        "first.elapsed_time(mark) / 1000",
        "first.elapsed_time(mark)",
        "tests/measure/test_timing.py",
    ),
    Mutant(
        "target-is-shifted",
        "measure/quality.py",
        "logits[piece.unscored - 1 : len(piece.ids) - 1]",
        "logits[piece.unscored : len(piece.ids)]",
        "tests/measure/test_quality.py",
    ),
    Mutant(
        "stale-artifact",
        "models/artifacts.py",
        "if file_digest(path) != digest:",
        "if not file_digest(path):",
        "tests/models/test_artifacts.py",
    ),
    Mutant(
        "key-lacks-the-seed",
        "models/candidates.py",
        '        "seed": settings.seed,\n',
        "",
        "tests/models/test_candidates.py",
        "same_seed",
    ),
    Mutant(
        "adapter-is-trusted",
        "models/trust.py",
        "if (folder / ADAPTER).exists():",
        "if False:",
        "tests/faults/test_model_faults.py",
        "adapter",
    ),
    Mutant(
        "events-are-tokens",
        "models/backends/endpoint_protocol.py",
        "min(self.tokens + 1, max(self._most - 1, 1))",
        "self.tokens + 1",
        "tests/models/backends/test_endpoint.py",
    ),
    Mutant(
        "percent-is-a-share",
        "options/parsers.py",
        "        return number / 100\n    if number >= 1:",
        "        return number\n    if number >= 1:",
        "tests/options/test_settings.py",
    ),
    Mutant(
        "padding-is-a-token",
        "workloads.py",
        "        mask[index, columns] = 1",
        "        mask[index] = 1",
        "tests/test_workloads.py",
    ),
    Mutant(
        "padding-is-counted",
        "workloads.py",
        "        return sum(map(len, self.prompts))",
        "        return sum(len(group) * width for group, width in zip(self.groups, self.widths, strict=True))",
        "tests/test_workloads.py",
    ),
    Mutant(
        "holes-are-read", "reading.py", "if status.st_size > LARGE_BYTES and", "if False and", "tests/test_reading.py"
    ),
    Mutant(
        "file-written-in-place",
        "writing.py",
        "    with replacing(path, follows=follows) as scratch:\n        scratch.write_bytes(",
        "    path.write_bytes(",
        "tests/test_writing.py",
    ),
    Mutant(
        "worker-outlives-its-parent",
        "processes/launch.py",
        "        if is_killed:\n            kill_with_parent()\n        end_with_parent()\n",
        "",
        "tests/processes/test_launch.py",
        "ends_in_the_middle",
    ),
    Mutant(
        "pause-is-timed",
        "measure/timing.py",
        "            held.go_on()\n",
        "            pass\n",
        "tests/processes/test_pausing.py",
    ),
    Mutant(
        "worker-is-not-killed",
        "processes/worker.py",
        "            self._process.kill()\n",
        "",
        "tests/processes/test_worker.py",
    ),
    Mutant(
        "reason-is-lost",
        "errors.py",
        'return (text if speaks else f"{type(error).__name__}: {text}".rstrip(": ")) + _hint(error)',
        "return text",
        "tests/test_errors.py",
    ),
    Mutant(
        "phase-counted-twice",
        "progress.py",
        "            if self._inner_s:\n                self._inner_s[-1] += elapsed\n",
        "",
        "tests/test_progress.py",
    ),
    Mutant(
        "formula-in-a-cell",
        "text.py",
        "if shown.lstrip().startswith(FORMULA) else shown",
        "if shown.startswith(FORMULA) else shown",
        "tests/test_text.py",
    ),
)
