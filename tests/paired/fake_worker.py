"""A worker without pytest or a model: says what the environment tells it to, in the messages of protocol.py.

FAKE is a JSON object: tests (seconds of a round, by test), protocol, noise (relative standard deviation of a round),
pauses (in each round), skips (reasons, by test), skips_after_s, errors (reasons, by test), untimed (tests), workloads
(digests, by test), variants (ids, by test), dies_in, hangs_in (a test), hangs_only (in that pair, which those wait for
that die), refuses (to collect), finishes (a status, before it collects), ends (with a status), mute (its only words),
run (what to finish with).
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

FAKE = json.loads(os.environ["FAKE"])
SOCKET = next(argument.partition("=")[2] for argument in sys.argv if argument.startswith("--llm-pair-socket="))
PEER = socket.socket(fileno=int(SOCKET)).makefile("rw", encoding="utf-8")
OWN_FOLDER = Path(os.environ["TMPDIR"]).parts[-2:]  # the pair and the side
HANGS = Path(os.environ["TMPDIR"]).parents[1] / "hangs"
CHANCE = random.Random("/".join(OWN_FOLDER))  # noqa: S311  # noise, the same each time


def say(kind: str, **content: Any) -> None:
    PEER.write(json.dumps({"kind": kind, **content}) + "\n")
    PEER.flush()


def hear() -> dict[str, Any]:
    line = PEER.readline()
    if not line:
        sys.exit("alone")
    message: dict[str, Any] = json.loads(line)
    return message


def run_test(test: str, seconds: float) -> None:
    if test in FAKE.get("skips", {}):
        time.sleep(FAKE.get("skips_after_s", 0))
        say("ended", test=test, status="skipped", reason=FAKE["skips"][test])
        return
    if test in FAKE.get("untimed", []):
        say("ended", test=test, status="measured", reason="")
        return
    workload = FAKE.get("workloads", {}).get(test, "same")
    variant = FAKE.get("variants", {}).get(test, "fp32")
    say("ready", test=test, workload=workload, variant=variant, is_on_cpu=True, times=times(seconds))
    while (order := hear())["kind"] == "go":
        misbehave(test)
        if test in FAKE.get("errors", {}):
            say("ended", test=test, status="error", reason=FAKE["errors"][test])
            return
        for _ in range(0 if order["is_prefill"] else FAKE.get("pauses", 0)):
            say("pause")
            assert hear()["kind"] == "resume"
        say("times", **times(seconds))
    say("ended", test=test, status="measured", reason="")


def times(seconds: float) -> dict[str, float]:
    latency_s = seconds * CHANCE.lognormvariate(0, FAKE.get("noise", 1e-3))
    tpot_s = latency_s / 20
    return {"latency_s": latency_s, "ttft_s": latency_s / 4, "tpot_s": tpot_s, "decode_tokens_per_s": 1 / tpot_s}


def misbehave(test: str) -> None:
    print(f"working on {test}", flush=True)  # noqa: T201  # its last words
    if test == FAKE.get("dies_in"):
        while "hangs_only" in FAKE and not HANGS.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if test == FAKE.get("hangs_in") and FAKE.get("hangs_only", OWN_FOLDER[0]) == OWN_FOLDER[0]:
        HANGS.touch()
        time.sleep(60 if "hangs_only" in FAKE else 600)
        HANGS.with_name("goes-on").touch()


if FAKE.get("mute"):
    sys.exit(FAKE["mute"])
say("hello", protocol=FAKE.get("protocol", 4), version="9.9")
begin = hear()
if FAKE.get("refuses"):
    sys.exit("no tests today")
if "finishes" in FAKE:
    say("finished", exit_status=FAKE["finishes"], run=None)
    time.sleep(0.2)  # its end takes a while
    sys.exit("no such file")
say("collected", tests=list(FAKE["tests"]))
for chosen in hear()["tests"]:
    run_test(chosen, FAKE["tests"][chosen])
say("finished", exit_status=FAKE.get("ends", 0), run=FAKE.get("run") if begin["observes"] else None)
