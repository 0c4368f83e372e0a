"""A record's metrics as attributes, and what is said of those that it doesn't have."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
from run_factory import QUALITY, make_record, make_variant, make_workload

from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.results.measured_record import MeasuredRecord, with_metrics
from llm_bench_fixtures.results.metrics import METRICS, Direction, Kind, Metric, Unit, registry
from llm_bench_fixtures.results.record import Status

MINE = Metric("mine", "Mine", "mine", Unit.COUNT, Direction.NEITHER, Kind.EXACT, "so many")
VARIANT = make_variant(quality=QUALITY)
ONE_TOKEN = make_workload(prompts=2, batch_size=2, prompt_tokens=64, new_tokens=2)


def measured(record: Any = None, variant: Any = VARIANT) -> MeasuredRecord:
    return with_metrics(record or make_record(median_s=0.5), variant, registry([MINE]))


def test_each_metric_that_it_has_is_an_attribute() -> None:
    record = measured(make_record(median_s=0.5, extra={"mine": 3.0, "unknown": 4.0}))
    assert (record.latency_s, record.output_tokens_per_s, record.perplexity) == (0.5, 16 / 0.5, QUALITY["perplexity"])
    assert (record.mine, record.unknown) == (3.0, 4.0)
    assert {"latency_s", "perplexity", "mine", "unknown", "workload"} <= set(dir(record))
    assert "tpot_s" not in dir(measured(make_record(workload=ONE_TOKEN)))
    for metric in METRICS:
        assert hasattr(record, metric.name) == (metric.name in record.metrics or metric.name == "energy_j")


def test_its_own_fields_are_what_they_were() -> None:
    """Of the metrics, energy_j alone is called as a field is: joules of each round."""
    plain = make_record(median_s=0.5, energy_j=(1.0, 3.0))
    record = measured(plain)
    assert (record.energy_j, record.metrics["energy_j"]) == ((1.0, 3.0), 2.0)
    assert vars(replace(plain, metrics=record.metrics)).items() <= vars(record).items()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)), replace])
def test_a_copy_has_them_too(copied: Any) -> None:
    record = copied(measured())
    assert record == measured()
    assert record.latency_s == 0.5


UNSEEN = make_record(
    work=Work(
        prompt_tokens=64,
        new_tokens=16,
        batches=1,
        forward_passes=None,
        prefill_flops=None,
        decode_flops=None,
        flops_reason="an unknown architecture",
        weight_bytes_read=None,
        cache_bytes=None,
        cache_bytes_read=None,
        output_digest="",
        passes_reason="transformers alone is seen",
    )
)
NOT_TIMED = make_record(status=Status.NOT_MEASURED, rounds_s=(), batches_s=())
ABSENT: dict[str, tuple[str, Any, Any, str]] = {
    "no metric": ("latncy_s", make_record(), VARIANT, "there is no such metric. It has latency_s, "),
    "no value of a project's own": ("mine", make_record(), VARIANT, "it is so many. It has latency_s, "),
    "one token": ("tpot_s", make_record(workload=ONE_TOKEN), VARIANT, "it is (last token - first token) / "),
    "one round": ("latency_stddev_s", make_record(rounds_s=(1.0,)), VARIANT, "it is sample standard deviation of the "),
    "no blocks": ("speedup", make_record(), VARIANT, "it is the reference's latency / latency, for each pair of "),
    "no accelerator": ("cuda_max_allocated_bytes", make_record(), VARIANT, "it is torch.cuda.max_memory_allocated "),
    "no counts": ("forward_passes", UNSEEN, VARIANT, "transformers alone is seen (it is calls of the model in a round"),
    "no FLOPs": ("decode_flops", UNSEEN, VARIANT, "an unknown architecture (it is prefill_flops' count, "),
    "random weights": ("perplexity", make_record(), make_variant(quality={}, quality_note="random weights"), "random"),
    "the reference's own divergence": ("kld_max", make_record(), VARIANT, "quality is compared with the reference"),
    "nothing timed": ("latency_s", NOT_TIMED, VARIANT, "nothing is timed under --benchmark-disable, nor in pytest-"),
}


@pytest.mark.parametrize(("name", "record", "variant", "reason"), ABSENT.values(), ids=ABSENT)
def test_what_it_has_not_is_said_with_the_reason(name: str, record: Any, variant: Any, reason: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(measured(record, variant), name)
    assert str(caught.value).startswith(f"this record has no {name}: {reason}")
    assert "It has " in str(caught.value)


class Unscored:
    """A variant whose quality is known once `record` asks for it."""

    def __init__(self, *metrics: Metric) -> None:
        self.asked = 0
        blank = make_variant(quality={}, quality_note="not scored yet")
        self.record = with_metrics(make_record(median_s=0.5), blank, registry([MINE, *metrics]), self.score)

    def score(self) -> Any:
        self.asked += 1
        return VARIANT


@pytest.mark.parametrize(
    "read",
    [
        lambda record: record.perplexity,
        lambda record: record.metrics["perplexity"],
        lambda record: dict(record.metrics)["perplexity"],
        lambda record: pickle.loads(pickle.dumps(record)).perplexity,
    ],
)
def test_a_quality_that_is_read_has_the_variant_scored(read: Any) -> None:
    unscored = Unscored()
    assert read(unscored.record) == QUALITY["perplexity"]
    assert unscored.asked == 1
    assert unscored.record.metrics == measured(make_record(median_s=0.5)).metrics


def test_what_needs_no_quality_scores_nothing() -> None:
    unscored = Unscored()
    record = unscored.record
    assert (record.latency_s, record.metrics["latency_s"]) == (0.5, 0.5)
    with pytest.raises(AttributeError, match="no cuda_max_allocated_bytes: it is "):
        _ = record.cuda_max_allocated_bytes
    assert "latency_s" in dir(record)
    assert "Record" in repr(record)
    assert unscored.asked == 0


def test_what_scoring_did_not_give_is_said_with_the_reason() -> None:
    with pytest.raises(AttributeError, match="no kld_max: quality is compared with the reference"):
        _ = Unscored().record.kld_max


def test_a_formula_of_ones_own_that_reads_the_quality_has_the_variant_scored() -> None:
    def value(_: object, variant: Any) -> float:
        return float(variant.quality["perplexity"]) * 2

    unscored = Unscored(replace(MINE, name="twice", value=value))
    assert unscored.record.known_metrics["twice"] == QUALITY["perplexity"] * 2
    assert unscored.asked == 1
