"""What takes long is shown while it runs, past the capturing of output, and leaves nothing behind on a terminal."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from typing import TYPE_CHECKING

import pytest

from llm_bench_fixtures.plugin.terminal_progress import duration, line_of
from llm_bench_fixtures.progress import Left, Ongoing, about

if TYPE_CHECKING:
    from conftest import Bench

ROUND = Ongoing("batch[8]", 6.2, "case 5/28", "round 3/5", "bf16", Left(9.4, is_most=True), 192.0)
LONG_ACTIVITY = """
    import time
    from llm_bench_fixtures.progress import Phase, Progress
    from llm_bench_fixtures.plugin.terminal_progress import TerminalProgress

    def tea(request, long_in_log_s=0.0):
        progress = Progress(TerminalProgress(request.config, long_in_log_s), show_after_s=0.02)
        with progress.activity(Phase.LOADING, "making tea"):
            print("this is captured")
            with progress.activity(Phase.LOADING, "boiling water"):
                time.sleep(0.15)
            time.sleep(0.15)
        with progress.activity(Phase.LOADING, "taking a sip"):
            pass

    def test_first():
        pass

    def test_long(request):
        tea(request)

    def test_again(request):
        tea(request)
"""


def test_a_line_says_which_of_how_many_how_far_and_how_long() -> None:
    assert line_of(ROUND) == "  case 5/28, batch[8], round 3/5, bf16: 6 s, up to 9 s of rounds left; run: ~3 min"
    scoring = Ongoing("scoring bf16", 6.0, "variant 3/11", "40 %", left=Left(9.0))
    assert line_of(scoring) == "  variant 3/11, scoring bf16, 40 %: 6 s, ~9 s left"


def test_what_nobody_knows_is_not_guessed() -> None:
    assert line_of(Ongoing("importing torch", 3.0)) == "  importing torch: 3 s"
    assert line_of(Ongoing("loading bf16", 3.0, run_left_s=60.0)) == "  loading bf16: 3 s; run: ~60 s"


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "  case 5/28, batch[8], round 3/5: 6 s, up to 9 s of rounds left; run: ~3 min"),
        (65, "  batch[8], round 3/5: 6 s, up to 9 s of rounds left"),
        (20, "  batch[8], round 3/"),
    ],
)
def test_a_narrow_terminal_shows_what_is_needed_most(width: int, line: str) -> None:
    assert line_of(ROUND, width) == line


def test_a_case_that_is_named_after_a_prompt_leaves_room_for_the_rest() -> None:
    status = Ongoing("quantization[Once upon a time there was a keeper of a lighthouse]", 3.0, step="round 1/5")
    assert line_of(status, 80) == "  quantization[Once upon a time .., round 1/5: 3 s"


def test_a_hostile_name_moves_no_cursor() -> None:
    assert line_of(Ongoing("finding \x1b[2J\r\n漢", 3.0)).startswith("  finding \ufffd[2J\ufffd\ufffd漢: 3 s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (99.4, "99 s"), (100.0, "1 min 40 s"), (5999.0, "99 min 59 s"), (6000.0, "1 h 40 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99.4, "99 s"), (100.0, "2 min"), (5900.0, "98 min"), (6000.0, "1 h 40 min")]
)
def test_what_is_to_come_is_not_told_to_the_second(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
def test_a_log_has_one_line_for_what_takes_long(bench: Bench, capture: str) -> None:
    bench.write(test_tea=LONG_ACTIVITY)
    result = bench.run(f"--capture={capture}", "-k", "long")
    assert result.ret == 0
    lines = [line for line in result.stdout.lines if "making tea" in line or "boiling water" in line]
    assert lines == ["  boiling water: 0 s", "  making tea: 0 s"]
    assert "taking a sip" not in result.stdout.str()
    assert ("this is captured" in result.stdout.str()) is (capture == "no")


@pytest.mark.parametrize("arguments", [("-q",), ("-p", "no:terminal")])
def test_quiet_runs_show_nothing(bench: Bench, arguments: tuple[str, ...]) -> None:
    bench.write(test_tea=LONG_ACTIVITY)
    result = bench.run(*arguments)
    assert result.ret == 0
    assert "making tea" not in result.stdout.str()


def test_a_log_has_no_line_for_what_takes_less_than_ten_seconds(bench: Bench) -> None:
    bench.write(test_tea=LONG_ACTIVITY.replace("long_in_log_s=0.0", "long_in_log_s=10.0"))
    assert "making tea" not in bench.run().stdout.str()


def on_a_terminal(folder: os.PathLike[str], *arguments: str, **environment: str) -> str:
    """What pytest writes to a pseudo-terminal of 80 columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in ("CI", "COLUMNS", "NO_COLOR")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", *arguments]
    with subprocess.Popen(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env={**known, "TERM": "xterm", **environment}
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # how Linux says that the other end is closed
                break
            if not piece:
                break
            written += piece
    os.close(ours)
    assert process.returncode == 0, written.decode()
    return written.decode()


def screen(written: str) -> list[str]:
    """The lines that a terminal shows in the end; it knows what pytest and the plugin write, and no more."""
    rows, row, column = [""], 0, 0
    for code, count, command, character in re.findall(r"(\x1b\[(\d*)([A-Z]))|(.)", written, re.DOTALL):
        if command == "A":
            row -= int(count)
        elif command == "G":
            column = int(count) - 1
        elif command == "K":
            assert count == "2"
            rows[row] = ""
        elif character == "\r":
            column = 0
        elif character == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        else:
            assert not code
            line = rows[row].ljust(column)
            rows[row] = f"{line[:column]}{character}{line[column + 1 :]}"
            column += 1
    return [line.rstrip() for line in rows]


@pytest.mark.parametrize("verbose", [(), ("-v",)], ids=["dots", "names"])
def test_on_a_terminal_lines_replace_each_other_and_leave_nothing(bench: Bench, verbose: tuple[str, ...]) -> None:
    """The screen in the end is that of a run that shows nothing, but for the seconds that it took."""
    bench.write(test_tea=LONG_ACTIVITY)
    written = on_a_terminal(bench.pytester.path, *verbose)
    assert written.count("making tea: 0 s") >= 2
    assert "boiling water" in written
    bench.write(test_tea=LONG_ACTIVITY.replace("TerminalProgress(request.config, long_in_log_s)", "None"))
    plain = on_a_terminal(bench.pytester.path, *verbose)
    shown, expected = ([re.sub(r"[\d.]+s =*$", "", line) for line in screen(text)] for text in (written, plain))
    assert shown == expected


@pytest.mark.parametrize("environment", [{"CI": "true"}, {"TERM": "dumb"}])
def test_a_terminal_that_nobody_watches_or_that_knows_no_commands_is_a_log(
    bench: Bench, environment: dict[str, str]
) -> None:
    bench.write(test_tea=LONG_ACTIVITY)
    written = on_a_terminal(bench.pytester.path, "-k", "long", **environment)
    assert written.count("making tea") == 1
    assert "\x1b[" not in written


def test_a_load_that_takes_long_is_shown(own_suite: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_bench_fixtures.plugin.terminal_progress.LONG_IN_LOG_S", 0.5)
    own_suite.write(
        conftest="""
        from llm_bench_fixtures import Variant

        def pytest_llm_bench_variants():
            return [Variant("slow", "slow_loading", "slow to load")]
        """,
        slow_loading="""
        import time
        from llm_bench_fixtures import Backend, load_source_model

        def load(request):
            time.sleep(3.5)  # what takes two seconds is shown, half a second later at most
            return load_source_model(request)

        BACKEND = Backend(load)
        """,
    )
    result = own_suite.run("--llm-variants", "slow,fp32")
    assert result.ret == 0
    result.stdout.re_match_lines([r"  loading slow: \d+ s"])
    assert own_suite.variants()["slow"]["load_s"] > 3.4
