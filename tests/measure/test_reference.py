"""The reference's files: their size, what is kept of a distribution too large for them, and how good that is."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from llm_bench_fixtures.errors import ReferenceMismatch
from llm_bench_fixtures.measure.quality import score_chunks
from llm_bench_fixtures.measure.reference import (
    add_tail,
    compare_with_reference,
    divergence_metrics,
    probability_metrics,
    ratio_metrics,
)
from llm_bench_fixtures.measure.reference_files import (
    BUDGET_BYTES,
    LEAST_SAMPLES,
    LEAST_TOP,
    ArrayFile,
    ReferenceLayout,
    is_kept,
    keep_reference,
    plan_layout,
)
from llm_bench_fixtures.measure.windows import Window

POSITIONS, VOCABULARY = 200, 500


def file_bytes(layout: ReferenceLayout) -> int:
    """Of all files together; each number takes 4 bytes."""
    return sum(4 * layout.positions * math.prod(row) for _, row in layout.arrays.values())


def test_what_fits_the_budget_is_kept_whole() -> None:
    layout = plan_layout(1000, 4096, "")
    assert layout.is_exact
    assert layout.arrays["probabilities"] == ("float32", (4096,))
    assert file_bytes(layout) == 1000 * (4096 + 3) * 4


@pytest.mark.parametrize(
    ("positions", "vocabulary"), [(100_000, 128_256), (8192, 4097), (300_000, 50_257), (1_000_000, 256_000)]
)
def test_what_does_not_fit_stays_within_the_budget(positions: int, vocabulary: int) -> None:
    """100,000 tokens over 128,256: 51 GB of probabilities become at most 128 MiB, and most of that is used."""
    layout = plan_layout(positions, vocabulary, "")
    assert not layout.is_exact
    assert 0.9 * BUDGET_BYTES < file_bytes(layout) <= BUDGET_BYTES or positions == 1_000_000


def test_the_budget_of_a_hundred_thousand_tokens_by_hand() -> None:
    """1342 bytes a position: 12 for the scalars, 8 for each of 166 pairs of id and log-probability."""
    layout = plan_layout(100_000, 128_256, "")
    assert (layout.top, layout.samples) == (83, 83)
    assert file_bytes(layout) == 100_000 * (12 + 8 * 166)


def test_however_many_the_positions_some_of_each_is_kept() -> None:
    layout = plan_layout(10_000_000, 128_256, "")
    assert (layout.top, layout.samples) == (LEAST_TOP, LEAST_SAMPLES)


def test_of_a_small_vocabulary_no_more_is_kept_than_there_is() -> None:
    assert plan_layout(10_000_000, 10, "").top == 10


def random_logits(seed: int, peakedness: float = 3.0) -> torch.Tensor:
    return peakedness * torch.randn(POSITIONS, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def targets() -> tuple[int, ...]:
    return tuple(torch.randint(0, VOCABULARY, (POSITIONS,), generator=torch.Generator().manual_seed(9)).tolist())


def keep(folder: Path, layout: ReferenceLayout, logits: torch.Tensor, rows: int = 64) -> None:
    with keep_reference(folder, layout) as writer:
        first = 0
        for chunk in score_chunks(logits, Window((0, *targets()), unscored=1), rows):
            writer.take(first, chunk)
            first += len(chunk.nll)


def compare(folder: Path, logits: torch.Tensor, rows: int = 64) -> dict[str, float]:
    nll = []
    with compare_with_reference(folder, POSITIONS, VOCABULARY, "digest") as comparison:
        for chunk in score_chunks(logits, Window((0, *targets()), unscored=1), rows):
            comparison.take(sum(map(len, nll)), chunk)
            nll.append(chunk.nll.numpy().copy())
        return comparison.compared().metrics(np.concatenate(nll))


def layout_of(top: int, samples: int) -> ReferenceLayout:
    return ReferenceLayout(POSITIONS, VOCABULARY, "digest", top, samples)


EXACT = layout_of(VOCABULARY, 0)


def divergences(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """By torch, in float64."""
    logs = [logits.double().log_softmax(-1) for logits in (p, q)]
    return torch.nn.functional.kl_div(logs[1], logs[0], reduction="none", log_target=True).sum(-1)


@pytest.mark.parametrize("distance", [0.001, 0.1, 1.0])
def test_the_whole_distributions_give_torchs_divergence(distance: float, tmp_path: Path) -> None:
    p = random_logits(1)
    q = p + distance * random_logits(2)
    keep(tmp_path, EXACT, p)
    metrics, expected = compare(tmp_path, q), divergences(p, q).numpy()
    assert metrics["kld_mean"] == pytest.approx(expected.mean(), rel=1e-4, abs=1e-7)
    assert metrics["kld_max"] == pytest.approx(expected.max(), rel=1e-4, abs=1e-6)
    assert metrics["kld_p50"] == pytest.approx(np.median(expected), rel=1e-4, abs=1e-6)
    assert metrics["kld_p99"] == pytest.approx(np.quantile(expected, 0.99), rel=1e-4, abs=1e-6)
    assert metrics["top1_agreement"] == (p.argmax(-1) == q.argmax(-1)).double().mean().item()
    assert metrics["kld_error"] == 0.0


def test_logits_far_from_zero_lose_no_digits(tmp_path: Path) -> None:
    """Some models' logits are all about -100, where float32 has steps of a hundred-thousandth."""
    p, q = random_logits(1), random_logits(2)
    keep(tmp_path, EXACT, p - 100)
    assert compare(tmp_path, q - 100)["kld_mean"] == pytest.approx(float(divergences(p, q).mean()), rel=1e-5)


@pytest.mark.parametrize("kept", [(VOCABULARY, 0), (40, 40)], ids=["whole", "sampled"])
@pytest.mark.parametrize("distance", [1e-3, 1e-4, 3e-5])
def test_a_divergence_far_below_the_steps_of_float32_entropies(
    distance: float, kept: tuple[int, int], tmp_path: Path
) -> None:
    """Of 5e-7 down to 5e-10 nats, where cross entropy less entropy comes in steps of 5e-7 nats."""
    p = random_logits(1, peakedness=1.0)
    q = p + distance * random_logits(2, peakedness=1.0)
    keep(tmp_path, layout_of(*kept), p)
    metrics, expected = compare(tmp_path, q), divergences(p, q).numpy()
    assert expected.mean() == pytest.approx(distance**2 / 2, rel=0.1)
    assert metrics["kld_mean"] == pytest.approx(expected.mean(), rel=0.02, abs=2 * metrics["kld_error"])
    assert metrics["kld_p50"] == pytest.approx(np.median(expected), rel=0.02, abs=metrics.get("kld_p50_error", 0.0))


@pytest.mark.parametrize("kept", [(VOCABULARY, 0), (40, 40), (VOCABULARY, 2)], ids=["whole", "sampled", "all on top"])
def test_equal_distributions_diverge_by_exactly_nothing(kept: tuple[int, int], tmp_path: Path) -> None:
    p = random_logits(1, peakedness=30.0)  # some tokens' probabilities vanish in float32
    keep(tmp_path, layout_of(*kept), p)
    metrics = compare(tmp_path, p)
    assert (metrics["kld_mean"], metrics["kld_max"]) == (0.0, 0.0)


@pytest.mark.parametrize("distance", [0.01, 0.3])
def test_with_every_token_among_the_top_ones_the_sampled_form_is_exact(distance: float, tmp_path: Path) -> None:
    p = random_logits(1)
    q = p + distance * random_logits(2)
    keep(tmp_path / "exact", EXACT, p)
    keep(tmp_path / "sampled", layout_of(VOCABULARY, 2), p)
    exact, sampled = (compare(tmp_path / name, q) for name in ("exact", "sampled"))
    assert sampled == pytest.approx(exact, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("distance", [0.0, 0.01, 0.1, 0.5])
def test_a_sampled_divergence_is_exact_to_its_stated_error(distance: float, tmp_path: Path) -> None:
    """A flat distribution, three quarters of it in the tail. Twice the half-width is nearly four standard errors."""
    p = random_logits(1, peakedness=1.0)
    q = p + distance * random_logits(2)
    keep(tmp_path, layout_of(40, 40), p)
    metrics, exact = compare(tmp_path, q), divergences(p, q).numpy()
    expected = float(exact.mean())
    assert abs(metrics["kld_mean"] - expected) <= 2 * metrics["kld_error"] + 1e-6
    assert metrics["kld_error"] <= 0.05 * expected + 1e-6
    for name, share in {"kld_p50": 0.5, "kld_p99": 0.99, "kld_max": 1.0}.items():
        assert abs(metrics[name] - np.quantile(exact, share)) <= metrics.get(f"{name}_error", 0.0) + 1e-6


def test_sampling_is_unbiased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 40 seeds the stated error is what the estimates scatter by, and their mean is the exact value."""
    p = random_logits(1, peakedness=1.0)
    q = p + 0.3 * random_logits(2)
    runs = []
    for seed in range(40):
        monkeypatch.setattr("llm_bench_fixtures.measure.reference_files.SEED", seed)
        keep(tmp_path, layout_of(20, 20), p)
        runs.append(compare(tmp_path, q))
    means = np.array([run["kld_mean"] for run in runs])
    stated = np.mean([run["kld_error"] for run in runs]) / 1.96
    assert abs(means.mean() - float(divergences(p, q).mean())) < 4 * stated / math.sqrt(40)
    assert 0.7 < means.std(ddof=1) / stated < 1.4


def test_the_same_positions_draw_the_same_sample(tmp_path: Path) -> None:
    p, q = random_logits(1), random_logits(2)
    keep(tmp_path / "once", layout_of(20, 20), p)
    keep(tmp_path / "again", layout_of(20, 20), p)
    assert compare(tmp_path / "once", q) == compare(tmp_path / "again", q)


def test_samples_come_from_outside_the_top_and_in_proportion(tmp_path: Path) -> None:
    """Of probabilities 1/2, 1/4, 1/8, 1/8 the top one is kept: the others are drawn 2 : 1 : 1."""
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().expand(POSITIONS, 4)
    with keep_reference(tmp_path, ReferenceLayout(POSITIONS, 4, "digest", 1, 100)) as writer:
        (chunk,) = score_chunks(logits, Window((0,) * (POSITIONS + 1), unscored=1), POSITIONS)
        writer.take(0, chunk)
    drawn = np.fromfile(tmp_path / "tail_ids", np.int32)
    shares = np.bincount(drawn, minlength=4) / drawn.size
    assert shares[0] == 0
    assert shares[1:] == pytest.approx([0.5, 0.25, 0.25], abs=0.015)  # four standard errors of 20,000 draws
    assert np.fromfile(tmp_path / "tail_mass", np.float32) == pytest.approx(0.5)
    assert np.fromfile(tmp_path / "top_ids", np.int32).tolist() == [0] * POSITIONS


def test_the_control_variate_takes_its_share_of_the_noise_away() -> None:
    """Where the excess is the negative of the part's error, all of it."""
    truth, noise = np.full(4, 0.5), np.array([0.1, -0.2, 0.05, 0.05])
    ones = np.ones(4)
    tail = np.stack([truth + noise, -noise, ones, ones, -ones], axis=-1)
    kld, left = add_tail(np.zeros(4, np.float32), tail)
    assert kld == pytest.approx(truth)
    assert left.tolist() == [0.0] * 4


def test_an_infinite_divergence_takes_no_error_away_from_the_others() -> None:
    part, variance = np.array([0.1, 0.2, math.inf]), np.array([0.01, 0.01, math.nan])
    tail = np.stack([part, np.zeros(3), variance, np.zeros(3), np.zeros(3)], axis=-1)
    kld, noise = add_tail(np.zeros(3, np.float32), tail)
    assert noise == pytest.approx([0.1, 0.1, 0.0])
    metrics = divergence_metrics(kld, noise, samples=20)
    assert metrics["kld_max"] == math.inf
    assert metrics["kld_p50_error"] > 0


def test_few_samples_reach_further_than_many() -> None:
    """Student's distribution of one degree of freedom has its 1 - 0.025 / 2 quantile at 25.45, where the normal law's
    is at 2.24."""
    metrics = divergence_metrics(np.array([1.0, 2.0]), np.array([0.1, 0.1]), samples=2)
    assert metrics["kld_max_error"] == pytest.approx(2.545, abs=1e-3)


def test_without_noise_in_the_excess_it_is_left_alone() -> None:
    zeros = np.zeros(2)
    tail = np.stack([np.array([0.1, 0.2]), zeros, np.full(2, 0.25), zeros, zeros], axis=-1)
    kld, noise = add_tail(zeros.astype("float32"), tail)
    assert kld.tolist() == [0.1, 0.2]
    assert noise.tolist() == [0.5, 0.5]


def test_the_files_are_what_the_layout_says(tmp_path: Path) -> None:
    for layout in (EXACT, layout_of(20, 30)):
        folder = tmp_path / str(layout.top)
        keep(folder, layout, random_logits(1))
        sizes = {name: (folder / name).stat().st_size for name in layout.arrays}
        assert sizes == {name: 4 * layout.positions * math.prod(row) for name, (_, row) in layout.arrays.items()}


def test_rows_are_read_as_they_were_written_in_whatever_order(tmp_path: Path) -> None:
    with (tmp_path / "rows").open("w+b") as file:
        array = ArrayFile(file, "float32", (2,))
        array.put(2, torch.tensor([[4.0, 5.0]]))
        array.put(0, torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
        assert array.get(1, 2).tolist() == [[2.0, 3.0], [4.0, 5.0]]
        with pytest.raises(ReferenceMismatch, match="rows was cut short"):
            array.get(2, 2)


def test_a_comparison_leaves_the_files_as_they_were(tmp_path: Path) -> None:
    keep(tmp_path, EXACT, random_logits(1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    compare(tmp_path, random_logits(2))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_reference_whose_scoring_failed_is_not_kept(tmp_path: Path) -> None:
    """Also where an earlier one was there."""
    keep(tmp_path, EXACT, random_logits(1))
    assert is_kept(tmp_path)
    with pytest.raises(RuntimeError, match="out of luck"), keep_reference(tmp_path, EXACT):
        raise RuntimeError("out of luck")
    assert not is_kept(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": 501}, "has a vocabulary of 501, and the model one of 500"),
        ({"positions": 201}, "was scored on 201 other tokens than the model's 200"),
        ({"digest": "another"}, "both need the same corpus, tokenizer and windows"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    keep(tmp_path, EXACT, random_logits(1))
    layout = json.loads((tmp_path / "layout.json").read_text())
    (tmp_path / "layout.json").write_text(json.dumps(layout | change))
    with pytest.raises(ReferenceMismatch, match=message):
        compare(tmp_path, random_logits(2))


def test_the_ratio_and_its_error_by_hand() -> None:
    """Differences of 0.1 and 0.3: mean 0.2, standard deviation sqrt(0.02), of the mean 0.1."""
    metrics = ratio_metrics(np.array([1.1, 2.3], np.float32), np.array([1.0, 2.0], np.float32))
    assert metrics["ppl_ratio"] == pytest.approx(math.exp(0.2), rel=1e-6)
    assert metrics["ppl_ratio_error"] == pytest.approx(0.1 * math.exp(0.2), rel=1e-5)


def test_the_error_is_of_the_paired_differences() -> None:
    """A variant that is worse by the same everywhere has a ratio without error, however the tokens scatter."""
    reference = np.linspace(0, 10, 50, dtype=np.float32)
    assert ratio_metrics(reference + np.float32(0.5), reference)["ppl_ratio_error"] == pytest.approx(0, abs=1e-6)


def test_an_infinite_loss_has_an_infinite_ratio() -> None:
    assert ratio_metrics(np.array([math.inf], np.float32), np.array([1.0], np.float32))["ppl_ratio"] == math.inf


def test_a_loss_that_is_no_number_has_no_ratio() -> None:
    """Else it would read as a perplexity that fell by 100 %."""
    for broken in (math.nan, math.inf):
        both = np.array([broken], np.float32)
        assert math.isnan(ratio_metrics(both, both)["ppl_ratio"])


def test_the_change_of_probability_by_hand() -> None:
    """From 1/2 to 1/4 and from 1/4 to 3/4: on average up by an eighth."""
    nll, reference = (np.log(np.array(odds, np.float32)) for odds in ([4, 4 / 3], [2, 4]))
    metrics = probability_metrics(nll, reference)
    assert metrics["mean_dp"] == pytest.approx(0.125)
    assert metrics["rms_dp"] == pytest.approx(math.sqrt((0.25**2 + 0.5**2) / 2))


def test_the_percentiles_of_a_thousand_divergences() -> None:
    metrics = divergence_metrics(np.arange(1001) / 1000, np.zeros(1001))
    assert metrics == pytest.approx(
        {"kld_mean": 0.5, "kld_error": 0.0, "kld_p50": 0.5, "kld_p99": 0.99, "kld_p999": 0.999, "kld_max": 1.0}
    )


def test_the_noise_of_samples_is_an_error_of_each_figure() -> None:
    """Of two positions: 1.96 sqrt(0.01 + 0.01) / 2 for their mean; 2.24 x 0.1, the normal law's 1 - 0.025 / 2 quantile
    times the noise, for what all of them could have moved by.
    """
    metrics = divergence_metrics(np.array([1.0, 2.0]), np.array([0.1, 0.1]), samples=10**6)
    assert metrics["kld_error"] == pytest.approx(0.1386, abs=1e-4)
    assert metrics["kld_p50_error"] == metrics["kld_max_error"] == pytest.approx(0.2241, abs=1e-4)
