"""Measure what the client of an endpoint costs by itself: against a server that does nothing but answer at once.

python tools/measure_endpoint.py [--requests N] [--tokens N] [--rates N,N,...] [--seconds N]

The server is a process of its own that holds its answers ready, so that what is measured is the client's (and the
system's) time alone: of a request, of each token, and how late requests are sent at each rate.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch

from llm_bench_fixtures.measure.open_loop import poisson_times, run_open_loop
from llm_bench_fixtures.models.backends.endpoint import EndpointModel
from llm_bench_fixtures.models.backends.endpoint_client import EndpointClient, Key
from llm_bench_fixtures.models.backends.endpoint_protocol import Asker, Card, Form, Served, StreamedAnswer
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.model import ModelFacts
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PROMPT = tuple(range(100, 164))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(value: object) -> bytes:
    return chunk(b"data: " + json.dumps(value).encode() + b"\n\n")


def answer(tokens: int) -> bytes:
    """Answer as vLLM's, whole."""
    parts = [event({"choices": [{"text": " a", "token_ids": [5]}]})] * tokens
    usage = {"prompt_tokens": len(PROMPT), "completion_tokens": tokens}
    return b"".join((HEAD, *parts, event({"choices": [], "usage": usage}), chunk(b"data: [DONE]\n\n"), chunk(b"")))


def serve(told: Connection) -> None:
    """The process: tells its port, and answers until it is killed."""
    ready = functools.cache(answer)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head.lower())[1]))
            writer.write(ready(json.loads(body)["max_tokens"]))

    async def run() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def connect(port: int) -> EndpointModel:
    url = f"http://127.0.0.1:{port}/v1"
    variant, device = SimpleNamespace(id="endpoint"), Device(DeviceKind.CPU, "cpu", "none")
    client = EndpointClient(url, Key(""), 60.0)
    served = Served(
        Asker(client, "none", None),
        Card("none"),
        "",
        Form(takes_ids=True),
        0,
        StreamedAnswer(1),
        StreamedAnswer(1),
        None,
    )
    facts = ModelFacts("none", None, 4096, 4096, runs_source=True, is_remote=True)
    return EndpointModel(variant, device, None, facts, asyncio.Runner(), served)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def median_s(run: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        began_s = time.perf_counter()
        run()
        found.append(time.perf_counter() - began_s)
    return statistics.median(found)


def show_one_at_a_time(model: EndpointModel, requests: int, tokens: int) -> None:
    """Show the client's time in a benchmark's round of one prompt."""
    ids = torch.tensor([PROMPT])

    def generate(new_tokens: int) -> object:
        return model.generate(ids, torch.ones_like(ids), new_tokens, CacheKind.DYNAMIC, lambda: None)

    generate(1)
    one_s = median_s(lambda: generate(1), requests)
    many_s = median_s(lambda: generate(tokens), max(requests // 10, 3))
    print(f"one request, one token: {milliseconds(one_s)}")
    print(f"each further token: {(many_s - one_s) / (tokens - 1) * 1e6:.0f} µs (of {tokens})")


def show_load(model: EndpointModel, rate: float, seconds: float, tokens: int) -> None:
    planned_s = poisson_times(rate, seconds, seed=0)
    used_s = time.process_time()
    requests = run_open_loop(model, planned_s, [PROMPT] * len(planned_s), tokens)
    used_s = time.process_time() - used_s
    point = LoadPoint("", "", rate, seconds, len(PROMPT), tokens, 1.0, 0.1, requests)
    median, worst = (point.percentile(lambda one: one.ttft_s, share) for share in (0.5, 0.99))
    times = " | ".join("–" if one is None else milliseconds(one) for one in (point.lag_s, median, worst))
    print(
        f"| {rate:g}/s | {len(requests)} | {times} | {used_s / seconds * 100:.0f} % | {sum(point.failures.values())} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What the client of an endpoint costs by itself.")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rates", default="1,10,50,100,200")
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    model = connect(ours.recv())
    try:
        show_one_at_a_time(model, given.requests, given.tokens)
        print("| rate | requests | send lag p99 | TTFT p50 | TTFT p99 | of a core | failed |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for rate in map(float, given.rates.split(",")):
            show_load(model, rate, given.seconds, given.tokens)
    finally:
        model.close()
        server.kill()
        server.join()


if __name__ == "__main__":
    main()
