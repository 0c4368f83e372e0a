"""Servers that answer slowly, wrongly or not at all: each costs the request, with the reason, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from endpoint_server import Body, CountingServer, Manner

pytest.importorskip("httpx2")

from llm_bench_fixtures.errors import EndpointFailed
from llm_bench_fixtures.measure.open_loop import run_open_loop
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.models.backends.endpoint import EndpointModel
from llm_bench_fixtures.models.backends.endpoint_client import EndpointClient, Key
from llm_bench_fixtures.models.backends.endpoint_protocol import Cards, Scores
from llm_bench_fixtures.models.loading import load_variant
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.workloads import Workload

if TYPE_CHECKING:
    from conftest import MakeRequest

ENDPOINT = Variant("endpoint", "endpoint", "a server")
Patient = Callable[[Callable[[Body], bool]], None]
PROMPT = tuple(range(100, 120))
TIMEOUT_S = 600.0
SOON_S = 0.1  # for what never comes
HANGS = ("silent", "stalls")

FAULTS = [
    ("429", "429 Too Many Requests: too many requests (retry after 3)"),
    ("500", "500 Internal Server Error: broken with no key"),
    ("html", "answered with text/html where a stream of events was asked for"),
    ("html error", "502 Bad Gateway: an HTML page"),
    ("json", "answered with application/json where a stream of events was asked for"),
    ("silent", "no whole answer within "),
    ("stalls", "no whole answer within "),
    ("dies", "the connection broke off: "),
    ("no head", "the connection broke off: "),
    ("half a stream", "the connection broke off: "),
    ("an early end", "the stream ended in the middle, after 4 tokens"),
    ("half an event", "an event that can't be read: "),
    ("a wrong event", "an event that can't be read: Expected `array`, got `str`"),
    ("an endless count", "an event that can't be read: Expected `int` <= 2147483647"),  # bug: the run hung
    ("an id of no token", "the server gave token 1000000, where the vocabulary has 4,096 tokens"),
    ("an error", "after 4 tokens: the engine died"),
    ("redirect https://elsewhere.test/v1", "redirected to https://elsewhere.test/v1. No redirect is followed"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[CountingServer]:
    with CountingServer().running() as server:
        yield server


@pytest.fixture(scope="module")
def model(server: CountingServer, make_request: MakeRequest) -> Iterator[EndpointModel]:
    model = load_variant(make_request(ENDPOINT, endpoint=server.url, endpoint_timeout=str(TIMEOUT_S))).model
    yield model
    model.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Patient:
    """Have requests end after SOON_S where the server hangs by their body, and all others after TIMEOUT_S."""

    def be_patient(hangs: Callable[[Body], bool]) -> None:
        answer = EndpointClient._answer

        def answer_in_time(client: EndpointClient, method: str, path: str, content: bytes) -> object:
            client._timeout_s = SOON_S if content and hangs(json.loads(content)) else TIMEOUT_S
            return answer(client, method, path, content)

        monkeypatch.setattr(EndpointClient, "_answer", answer_in_time)

    return be_patient


@pytest.mark.parametrize(("fault", "reason"), FAULTS, ids=[fault for fault, _ in FAULTS])
def test_a_fault_costs_the_request_and_nothing_else(
    fault: str, reason: str, server: CountingServer, model: EndpointModel, patient: Patient
) -> None:
    patient(lambda body: fault in HANGS and len(body["prompt"]) > 2)
    workload = Workload((PROMPT, (7, 8)), new_tokens=8, batch_size=2)
    server.manner = replace(server.manner, fault=lambda body: fault if len(body["prompt"]) > 2 else "")
    try:
        with pytest.raises(EndpointFailed) as failed:
            run_round(model, workload)
        good, bad = run_open_loop(model, (0.0, 0.0), ((7, 8), PROMPT), 8)
    finally:
        server.manner = replace(server.manner, fault=lambda _: "")
    assert reason in str(failed.value)
    assert reason in bad.failure
    assert not good.failure
    assert run_round(model, workload).continuations[0] == tuple(range(120, 128))


def test_an_answer_is_read_up_to_a_limit(server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: 126 MB of `[{},{},...]` for a list of models took 3.1 GB."""
    monkeypatch.setattr("llm_bench_fixtures.models.backends.endpoint_client.MOST_BYTES", 10)

    async def post() -> None:
        client = EndpointClient(server.url, Key(""), TIMEOUT_S)
        await client.post("/completions", {"prompt": list(PROMPT)}, Scores)

    with pytest.raises(EndpointFailed, match=r"/completions: an answer of over 0 MiB"):
        asyncio.run(post())


def test_a_connection_that_the_server_has_closed_costs_nothing(make_request: MakeRequest) -> None:
    """llama.cpp's server closes connections after a stream, which a client learns from its next request."""
    with CountingServer(Manner(answers_a_connection=1)).running() as server:
        model = load_variant(make_request(ENDPOINT, endpoint=server.url)).model
        found = run_round(model, Workload((PROMPT, (7, 8)), new_tokens=8, batch_size=1))
        model.close()
    assert found.continuations == (tuple(range(120, 128)), tuple(range(9, 17)))


def test_only_what_fails_on_a_connection_that_was_idle_is_sent_again() -> None:
    """A load's requests are not, so that each that fails counts."""

    async def sent(is_loaded: bool, is_used: bool) -> int:
        client = EndpointClient(server.url, Key(""), TIMEOUT_S)
        if is_used:
            await client.get("/models", Cards)
        began = len(server.seen)
        with client.loaded() if is_loaded else nullcontext(), pytest.raises(EndpointFailed, match="broke off"):
            await client.stream("/completions", {"stream": True}, lambda _: None)
        await client.close()
        return len(server.seen) - began

    with CountingServer(Manner(fault=lambda _: "dies")).running() as server:
        assert asyncio.run(sent(is_loaded=False, is_used=False)) == 1
        assert asyncio.run(sent(is_loaded=False, is_used=True)) == 2
        assert asyncio.run(sent(is_loaded=True, is_used=True)) == 1


def test_a_server_that_hangs_is_given_up_after_three_timeouts(patient: Patient) -> None:
    """Those of requests at the same time are one, and an answer between them begins anew."""
    patient(lambda body: body["prompt"] in HANGS)

    async def asked(client: EndpointClient, *faults: str) -> list[str]:
        asking = (client.stream("/completions", {"stream": True, "prompt": fault}, lambda _: None) for fault in faults)
        return [str(error) for error in await asyncio.gather(*asking, return_exceptions=True)]

    async def reasons() -> list[str]:
        client = EndpointClient(server.url, Key(""), TIMEOUT_S)
        sent = [["silent"] * 4, ["silent"], ["500"], ["silent"], ["silent"], ["silent"], ["silent"]]
        found = [(await asked(client, *faults))[-1] for faults in sent]
        with pytest.raises(EndpointFailed, match="isn't asked any more"), client.loaded():
            pass
        await client.close()
        return found

    with CountingServer(Manner(fault=lambda body: body["prompt"])).running() as server:
        found = asyncio.run(reasons())
        asked_for = len(server.seen)
    assert [("no whole answer" in one, "isn't asked any more" in one) for one in found] == [
        *[(True, False)] * 2,
        (False, False),
        *[(True, False)] * 3,
        (False, True),
    ]
    assert asked_for == 4 + 5


def test_a_client_without_file_descriptors_says_so(server: CountingServer) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []

    async def get() -> None:
        client = EndpointClient(server.url, Key(""), TIMEOUT_S)
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        await client.get("/models", Cards)

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        with pytest.raises(EndpointFailed, match="this client is short of resources: Too many open files") as failed:
            asyncio.run(get())
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failed.value.is_clients


def test_a_load_of_a_server_that_closes_connections_has_no_failures_of_that(make_request: MakeRequest) -> None:
    with CountingServer(Manner(answers_a_connection=1)).running() as server:
        model = load_variant(make_request(ENDPOINT, endpoint=server.url)).model
        found = run_open_loop(model, (0.0, 0.1, 0.2), ((7, 8), PROMPT, (5, 6)), 8)
        model.close()
    assert [one.failure for one in found] == [""] * 3


def test_a_server_that_is_not_there_is_named(make_request: MakeRequest) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(EndpointFailed, match=f"{url} can't be reached: "):
            load_variant(make_request(ENDPOINT, endpoint=url))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_that_nobody_vouches_for_is_refused(
    make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the user does, by SSL_CERT_FILE."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    asked = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost")
    names = ("-addext", "subjectAltName=IP:127.0.0.1")
    written = ("-keyout", key, "-out", certificate)
    subprocess.run(["openssl", *asked, *names, *written], check=True, capture_output=True)  # noqa: S607
    with CountingServer().running(certificate, key) as server:
        with pytest.raises(EndpointFailed, match=r"can't be reached: .*CERTIFICATE_VERIFY_FAILED"):
            load_variant(make_request(ENDPOINT, endpoint=server.url))
        assert server.seen == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        load_variant(make_request(ENDPOINT, endpoint=server.url)).close()
