"""A server on the loopback address that speaks OpenAI's interface in the manner that a test says, or fails as it says.

Its model counts: the token after `n` is `n + 1`, and nothing is likelier than that.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource

EXTENSIONS = {"ignore_eos", "return_token_ids", "timings_per_token", "cache_prompt", "cache_salt"}
QUOTED = 300  # characters of what a server says that a reason holds
LIKELY, UNLIKELY = -0.5, -2.0  # log-likelihoods of the token that follows, and of any other
CONTEXT = 512  # tokens
Body = dict[str, Any]


@dataclass
class Manner:
    """How the server behaves."""

    has_completions: bool = True
    is_strict: bool = False  # refuses what isn't OpenAI's
    takes_ids: bool = True
    tells_ids: bool = True
    tells_timings: bool = False
    tells_usage: bool = True
    tells_usage_at_once: bool = False  # with each event, where that is asked for
    empty_events: int = 0  # before each of tokens, with a part of their text
    tokens_an_event: int = 1
    more_prompt_tokens: Callable[[str], int] = lambda _: 0
    models: tuple[str, ...] = ("counting",)
    context: int = CONTEXT  # that it says it has
    described: Mapping[str, object] = field(default_factory=dict)  # in place of what it says of a model
    listed_besides: Sequence[object] = ()  # next to the models
    ends_after: int | None = None  # tokens, where no length is asked for that it knows
    scoring: str = "prompt_logprobs"  # "echo", "ignored" or "wrong"
    is_sure: bool = False  # of what it generates
    takes_full_prompts: bool = True  # as long as its context, so that no token can follow
    refuses: Callable[[Body], int] = lambda _: 0  # the status, for a request that isn't streamed
    cached_tokens: int | None = 0
    seconds_a_token: float = 0.0
    answers_a_connection: int = 1_000_000  # after which it is closed without a word
    fault: Callable[[Body], str] = lambda _: ""  # of a request to generate


@dataclass
class Seen:
    path: str
    headers: dict[str, str]
    body: Body


@dataclass
class CountingServer:
    manner: Manner = field(default_factory=Manner)
    seen: list[Seen] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        self.tokenizer = ModelSource(TINY, TINY_FOLDER).load_tokenizer()
        self._lock = threading.Lock()
        self.is_over = threading.Event()

    @contextmanager
    def running(self, certificate: Path | None = None, key: Path | None = None) -> Iterator[CountingServer]:
        """Serve while the block lasts; by TLS with a certificate."""
        http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"counting": self}))
        http.daemon_threads = True
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{http.server_address[1]}/v1"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self.is_over.set()
            http.shutdown()
            http.server_close()
            thread.join()

    @property
    def generated(self) -> list[Body]:
        """What it was asked to generate by streams."""
        return [one.body for one in self.seen if one.body.get("stream")]

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            with self._lock:
                self.at_once -= 1

    def prompt_of(self, body: Body) -> tuple[list[int], int]:
        """Token ids, and how many it says they are."""
        prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        if isinstance(prompt, list):
            return prompt, len(prompt)
        ids = self.tokenizer(prompt, add_special_tokens=False)["input_ids"] or [1]
        return ids, len(ids) + self.manner.more_prompt_tokens(prompt)

    def log_likelihoods(self, ids: Sequence[int]) -> list[float]:
        """Of each token after the first."""
        return [LIKELY if token == before + 1 else UNLIKELY for before, token in pairwise(ids)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    counting: CountingServer
    answered = 0

    def log_message(self, *_: object) -> None: ...

    @property
    def manner(self) -> Manner:
        return self.counting.manner

    def do_GET(self) -> None:
        self.counting.seen.append(Seen(self.path, dict(self.headers), {}))
        if self.path == "/v1/models":
            card = {"owned_by": "a test", "max_model_len": self.manner.context, **self.manner.described}
            cards = [{"id": name, **card} for name in self.manner.models]
            self.answer({"data": [*cards, *self.manner.listed_besides]})
        else:
            self.answer({"error": {"message": "no such path"}}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.answered >= self.manner.answers_a_connection:
            self.connection.shutdown(2)
            self.close_connection = True
            return
        self.answered += 1
        self.counting.seen.append(Seen(self.path, dict(self.headers), body))
        with self.counting.counted():
            if self.path == "/v1/completions" and not self.manner.has_completions:
                self.answer({"error": {"message": "this is a chat model"}}, 404)
            elif self.manner.is_strict and EXTENSIONS & body.keys():
                self.answer({"error": {"message": "unrecognized request argument"}}, 400)
            elif not self.manner.takes_ids and isinstance(body.get("prompt"), list):
                self.answer({"error": {"message": "the prompt must be a text"}}, 400)
            elif body.get("stream"):
                self.generate(body)
            else:
                self.score(body)

    def score(self, body: Body) -> None:
        ids, _ = self.counting.prompt_of(body)
        if status := self.manner.refuses(body):
            self.answer({"error": {"message": "not now"}}, status)
            return
        if len(ids) >= CONTEXT and not self.manner.takes_full_prompts:
            self.answer({"error": {"message": "max_tokens must be at least 1, got 0"}}, 400)
            return
        new = ids[-1] + 1
        choice: Body = {"text": self.counting.tokenizer.decode([new])}
        if self.manner.tells_ids and "return_token_ids" in body:
            choice["token_ids"] = [new]
        *scores, of_new = self.counting.log_likelihoods([*ids, new])
        of_new = -0.01 if self.manner.is_sure else of_new
        if self.manner.scoring == "wrong":
            scores = [0.0 for _ in scores]
        if "echo" in body:
            told = [None, *scores, LIKELY] if self.manner.scoring == "echo" else [LIKELY]
            choice["logprobs"] = {"token_logprobs": told}
        elif "logprobs" in body:
            choice["logprobs"] = {"token_logprobs": [of_new]}
        if "prompt_logprobs" in body and self.manner.scoring in ("prompt_logprobs", "wrong"):
            entries = [{str(token): {"logprob": score}} for token, score in zip(ids[1:], scores, strict=True)]
            choice["prompt_logprobs"] = [None, *entries]
        self.answer({"choices": [choice]})

    def generate(self, body: Body) -> None:
        fault = self.manner.fault(body)
        if fault and not self.breaks_early(fault):
            return
        ids, prompt_tokens = self.counting.prompt_of(body)
        number = body["max_tokens"]
        if self.manner.ends_after is not None and "ignore_eos" not in body:
            number = min(number, self.manner.ends_after)
        new = [(ids[-1] + 1 + step) % 4000 for step in range(number)]
        self.begin("text/event-stream")
        for start in range(0, number, self.manner.tokens_an_event):
            time.sleep(self.manner.seconds_a_token)
            if fault and start >= number // 2 and not self.breaks_off(fault):
                return
            for _ in range(self.manner.empty_events):
                self.event({"choices": [self.choice(body, "a part")]})
            self.event(self.of_tokens(body, new, start))
        self.event({"choices": [self.choice(body, "", finish_reason="length")]})
        if self.manner.tells_usage:
            details = {} if self.manner.cached_tokens is None else {"cached_tokens": self.manner.cached_tokens}
            usage = {"prompt_tokens": prompt_tokens, "completion_tokens": number, "prompt_tokens_details": details}
            self.event({"choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def of_tokens(self, body: Body, new: Sequence[int], start: int) -> Body:
        part = new[start : start + self.manner.tokens_an_event]
        choice = self.choice(body, self.counting.tokenizer.decode(part))
        if self.manner.tells_ids and "return_token_ids" in body:
            choice["token_ids"] = list(part)
        event: Body = {"choices": [choice]}
        if self.manner.tells_timings and "timings_per_token" in body:
            event["timings"] = {"predicted_n": start + len(part), "cache_n": self.manner.cached_tokens}
        if self.manner.tells_usage_at_once and body["stream_options"].get("continuous_usage_stats"):
            event["usage"] = {"completion_tokens": start + len(part)}
        return event

    def choice(self, body: Body, text: str, **more: Any) -> Body:
        return {"delta": {"content": text}, **more} if "messages" in body else {"text": text, **more}

    def breaks_early(self, fault: str) -> bool:
        """Whether it generates all the same, with a fault in the middle."""
        said = self.headers.get("authorization", "")
        key = said.removeprefix("Bearer ")
        faults: dict[str, Callable[[], None]] = {
            "key in body": lambda: self.answer({"error": {"message": "-" * (QUOTED - 4) + key}}, 500),
            "key in text": lambda: self.raw(500, "text/plain", b"-" * (QUOTED - 4) + key.encode()),
            "key in retry": lambda: self.answer({}, 429, {"Retry-After": "-" * 16 + key}),
            "key in type": lambda: self.raw(200, f"text/{key}", b""),
            "429": lambda: self.answer({"error": {"message": "too many requests"}}, 429, {"Retry-After": "3"}),
            "400": lambda: self.answer({"error": {"message": "no such parameter"}}, 400),
            "500": lambda: self.answer({"error": f"broken with {said or 'no key'}"}, 500),
            "html": lambda: self.raw(200, "text/html", b"<html><title>Log in</title></html>"),
            "html error": lambda: self.raw(502, "text/html", b"<html>Bad gateway</html>"),
            "json": lambda: self.answer({"choices": [{"text": "all at once"}]}),
            "silent": self.hang,
            "dies": lambda: self.connection.shutdown(2),
            "no head": lambda: self.wfile.write(b"garbage\r\n\r\n"),
        }
        if fault.startswith("redirect "):
            self.raw(307, "text/plain", b"", {"Location": fault.removeprefix("redirect ")})
        elif fault in faults:
            faults[fault]()
        else:
            return True
        return False

    def breaks_off(self, fault: str) -> bool:
        """Whether it goes on after the fault."""
        if fault == "half a stream":
            self.connection.shutdown(2)
        elif fault == "an early end":
            self.chunk(b"")
        elif fault == "half an event":
            self.chunk(b'data: {"choices": [{"te')
            self.chunk(b"")
        elif fault == "an error":
            self.event({"error": {"message": "the engine died"}})
            self.chunk(b"")
        elif fault == "key in event":
            key = self.headers.get("authorization", "").removeprefix("Bearer ")
            self.event({"error": "-" * (QUOTED - 4) + key})
            self.chunk(b"")
        elif fault == "an endless count":
            self.event({"choices": [], "usage": {"completion_tokens": 10**40}})
            self.chunk(b"")
        elif fault == "an id of no token":
            self.event({"choices": [{"text": "a", "token_ids": [10**6] * 4, "finish_reason": "length"}]})
            self.chunk(b"")
        elif fault == "a wrong event":
            self.chunk(b'data: {"choices": "none"}\n\n')
            self.chunk(b"")
        elif fault == "stalls":
            self.hang()
        else:
            raise AssertionError(fault)
        return False

    def hang(self) -> None:
        self.counting.is_over.wait()

    def answer(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.raw(status, "application/json", json.dumps(value).encode(), headers)

    def raw(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, value: object) -> None:
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
