"""A server as an engine: what it is asked, what is made of its answers, and what is kept from everybody."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from endpoint_server import CONTEXT, LIKELY, UNLIKELY, CountingServer, Manner
from whole_corpus import score_corpus

pytest.importorskip("httpx2")

from llm_bench_fixtures.errors import BackendUnavailable, EndpointFailed, InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure.open_loop import run_open_loop
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.windows import WindowPlan
from llm_bench_fixtures.models.backends.endpoint import (
    EndpointModel,
    key_variable,
    parse_by_variant,
    parse_endpoints,
    variants_of,
)
from llm_bench_fixtures.models.backends.endpoint_client import Key, read_key
from llm_bench_fixtures.models.backends.endpoint_protocol import StreamedAnswer
from llm_bench_fixtures.models.loading import load_variant
from llm_bench_fixtures.models.model import ScoresTokens, TakesRequests
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.workloads import Corpus, Padding, Prompts, Workload

if TYPE_CHECKING:
    from conftest import MakeRequest

ENDPOINT = Variant("endpoint", "endpoint", "a server")
UNREAD = "the server lists the model with a description that can't be read: "
FULL = tuple(range(CONTEXT))  # a window that fills the context

Serve = Callable[..., CountingServer]
Open = Callable[..., EndpointModel]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server of that manner."""
    with ExitStack() as running:
        yield lambda **manner: running.enter_context(CountingServer(Manner(**manner)).running())


@pytest.fixture
def connect(make_request: MakeRequest) -> Iterator[Open]:
    """Loads the variant of a server."""
    with ExitStack() as opened:

        def connect(server: CountingServer, **options: str) -> EndpointModel:
            model = load_variant(make_request(ENDPOINT, endpoint=server.url, **options)).model
            opened.callback(model.close)
            return model

        yield connect


def workload(*lengths: int, new_tokens: int = 8, **more: Padding) -> Workload:
    """Prompts of numbers that count, each row from another hundred."""
    rows = tuple(tuple(range(100 * row, 100 * row + length)) for row, length in enumerate(lengths, 1))
    return Workload(rows, new_tokens, len(rows), **more)


def test_options_name_servers_and_their_variants() -> None:
    assert parse_endpoints("") == {}
    assert parse_endpoints("http://127.0.0.1:8000/v1") == {"endpoint": "http://127.0.0.1:8000/v1"}
    given = parse_endpoints("a=http://one/v1, b.2=https://two:8443/v1")
    assert given == {"endpoint-a": "http://one/v1", "endpoint-b.2": "https://two:8443/v1"}
    assert parse_by_variant("a=org/name,other") == {"endpoint-a": "org/name", "endpoint": "other"}
    assert [one.id for one in variants_of(parse_settings({"endpoint": "a=http://one,b=http://two"}))] == [
        "endpoint-a",
        "endpoint-b",
    ]
    assert [key_variable(one) for one in ("endpoint", "endpoint-b.2")] == [
        "LLM_BENCH_ENDPOINT_KEY",
        "LLM_BENCH_ENDPOINT_KEY_B_2",
    ]


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        pytest.param("a=http://one,b=http://two", "no server is endpoint-c; .* are endpoint-a, endpoint-b", id="names"),
        pytest.param("http://one", "no server is endpoint-c; .* are endpoint$", id="no name"),
        pytest.param("", "no server is endpoint-c; .* are none", id="no server"),
    ],
)
def test_a_model_of_no_server_is_refused(servers: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=f"--llm-endpoint-model: {reason}"):
        variants_of(parse_settings({"endpoint": servers, "endpoint_model": "c=org/name"}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("ftp://host", "expected a URL", id="another scheme"),
        pytest.param("host:8000", "expected a URL", id="no scheme"),
        pytest.param("http://host:http/v1", "expected a URL", id="no port"),
        pytest.param("https://me:hunter2@host/v1", "give the key in", id="a password"),
        pytest.param("sk-hunter2", "a text without http:// or https://", id="a key"),
        pytest.param("a=sk-x:hunter2", "a text without http:// or https://", id="a key with a colon"),
        pytest.param("https://host/v1?key=hunter2", "give the key in", id="a query"),
        pytest.param("http://one,http://two", "given twice", id="two without names"),
        pytest.param("a.b=http://one,a-b=http://two", "would share a key", id="two names of one key's variable"),
    ],
)
def test_an_option_that_is_refused_quotes_no_secret(text: str, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason) as refused:
        parse_endpoints(text)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["two words", "schl\u00fcssel", "line\nbreak"])
def test_what_is_no_key_is_refused_unquoted(text: str) -> None:
    with pytest.raises(InvalidSetting, match="KEY_NAME holds what can't be a key") as refused:
        read_key("KEY_NAME", {"KEY_NAME": text})
    assert text not in str(refused.value)


MANNERS = {
    "token ids with each event": {},
    "three tokens in an event": {"tokens_an_event": 3},
    "counts in place of ids": {"tells_ids": False, "tells_timings": True},
    "usage with each event": {"tells_ids": False, "tokens_an_event": 3, "tells_usage_at_once": True},
    "usage at the end only": {"tells_ids": False, "tokens_an_event": 3},
    "more events than tokens": {"tells_ids": False, "empty_events": 2},
    "nothing but OpenAI's": {"is_strict": True, "takes_ids": False},
    "chat only": {"has_completions": False},
}


@pytest.mark.parametrize("manner", MANNERS.values(), ids=MANNERS)
def test_each_token_is_counted_once_whatever_an_event_holds(manner: dict, serve: Serve, connect: Open) -> None:
    model = connect(serve(**manner))
    done = run_round(model, workload(20, 30))
    assert [len(batch.tokens_s) for batch in done.batches] == [8]
    assert [len(row) for row in done.continuations] == [8, 8]
    if manner in ({}, MANNERS["three tokens in an event"]):
        assert done.continuations == (tuple(range(120, 128)), tuple(range(230, 238)))


def test_where_only_the_end_tells_the_last_token_is_there_with_it() -> None:
    """Bug: each event was a token, so that the eighth of many events was taken for the last of eight tokens."""
    told: list[int] = []
    answer = StreamedAnswer(4, told.append)
    for _ in range(6):
        answer.take(b'{"choices": [{"text": "a"}]}')
    assert told == [1, 2, 3]
    answer.take(b'{"choices": [], "usage": {"completion_tokens": 4}}')
    answer.take(b"[DONE]")
    answer.finish()
    assert (answer.tokens, told) == (4, [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        pytest.param({"usage": {"completion_tokens": 10**40}}, "Expected `int` <= 2147483647", id="endless tokens"),
        pytest.param({"usage": {"completion_tokens": 9}}, "gave 9 tokens where 8 were asked for", id="a token more"),
        pytest.param({"usage": {"prompt_tokens": -5}}, "Expected `int` >= 0", id="tokens below 0"),
        pytest.param({"timings": {"predicted_n": 10**9}}, "gave 1000000000 tokens", id="a thousand million"),
        pytest.param({"choices": [{"token_ids": [-7] * 8}]}, "Expected `int` >= 0", id="ids below 0"),
        pytest.param({"choices": [{"token_ids": [2**70]}]}, "Expected `int` <= 16777216", id="an id of 70 bits"),
        pytest.param({"choices": [{"token_ids": [10**9]}]}, "Expected `int` <= 16777216", id="an id of no vocabulary"),
        pytest.param({"choices": [{"text": "x" * 18_001}]}, "18,001 characters for 8 tokens", id="a text"),
        pytest.param({"error": {"error": {"message": "m"}}}, "after 0 tokens: m", id="an error in an error"),
        pytest.param({"error": 10**40}, "after 0 tokens: 10000", id="a number for an error"),
    ],
)
def test_what_a_server_says_is_bounded(event: dict, reason: str) -> None:
    """Bugs: the run hung for a count, lost its rounds by an id, and took 1.3 GB for the text of four tokens."""
    answer = StreamedAnswer(8)
    with pytest.raises(EndpointFailed, match=reason):
        answer.take(json.dumps({"choices": [{"text": ""}]} | event).encode())


def test_a_server_that_takes_no_form_has_its_reasons_told(serve: Serve, connect: Open) -> None:
    """Bug: that of the first form alone, which says nothing of why the chat was refused."""
    with pytest.raises(EndpointFailed, match=r"no such parameter"):
        connect(serve(has_completions=False, fault=lambda body: "400"))


def test_what_a_server_is_asked_depends_on_what_it_takes(serve: Serve, connect: Open) -> None:
    free, strict, chat = (serve(**MANNERS[name]) for name in (*list(MANNERS)[:1], *list(MANNERS)[-2:]))
    for server in (free, strict, chat):
        run_round(connect(server), workload(20))
    asked = free.generated[-1]
    assert asked["prompt"] == list(range(100, 120))
    assert (asked["max_tokens"], asked["ignore_eos"], asked["temperature"]) == (8, True, 0)
    assert asked["cache_prompt"] is False
    assert len({one["cache_salt"] for one in free.generated}) == len(free.generated)
    assert isinstance(strict.generated[-1]["prompt"], str)
    assert "ignore_eos" not in strict.generated[-1]
    assert chat.generated[-1]["messages"][0]["role"] == "user"


def test_the_prompts_of_a_batch_are_requests_at_the_same_time(serve: Serve, connect: Open) -> None:
    server = serve(seconds_a_token=0.01)
    model = connect(server)
    server.most_at_once = 0
    run_round(model, workload(20, 30, 10, 5))
    assert server.most_at_once == 4
    sent = sorted(one["prompt"] for one in server.generated[-4:])
    assert [len(one) for one in sent] == [20, 30, 10, 5]


@pytest.mark.parametrize(
    ("manner", "notes"),
    [
        pytest.param({}, [], id="one that tells everything"),
        pytest.param({"tells_ids": False, "tells_timings": True}, ["no token ids"], id="no ids"),
        pytest.param({"tells_ids": False, "tells_usage_at_once": True}, ["no token ids"], id="usage with each event"),
        pytest.param({"tells_ids": False}, ["doesn't report how many tokens", "no token ids"], id="usage at the end"),
        pytest.param({"tokens_an_event": 3}, ["its first event holds 3 tokens"], id="several tokens at once"),
        pytest.param({"cached_tokens": None}, ["report whether repeated prompts"], id="no word of a cache"),
        pytest.param({"cached_tokens": 48}, ["takes 48 tokens of a repeated prompt"], id="a cache of prompts"),
        pytest.param({"takes_ids": False}, ["sent as texts"], id="texts only"),
        pytest.param({"context": 0}, [f"{UNREAD}Expected `int` >= 1"], id="no context"),
        pytest.param({"described": {"owned_by": {}}}, [f"{UNREAD}Expected `str | null`"], id="an odd owner"),
        pytest.param({"described": {"meta": "x"}}, [f"{UNREAD}Expected `object | null`"], id="odd details"),
        pytest.param({"listed_besides": ({"name": "no id"}, 5)}, [], id="one that lists something without an id"),
        pytest.param({"more_prompt_tokens": len, "takes_ids": False}, ["are not those of"], id="other tokens"),
        pytest.param(
            {"has_completions": False, "more_prompt_tokens": lambda _: 9},
            ["sent as texts", "chat template of 9 tokens"],
            id="chat",
        ),
    ],
)
def test_the_report_says_what_is_particular_to_a_server(manner: dict, notes: list, serve: Serve, connect: Open) -> None:
    """Bug: one odd field in the list of models, or an entry without an id, cost the server."""
    facts = connect(serve(**manner)).facts
    assert len(facts.notes) == len(notes), facts.notes
    assert all(part in note for part, note in zip(notes, facts.notes, strict=True))
    assert facts.label.startswith("counting at 127.0.0.1:")
    assert (facts.is_remote, facts.weight_bytes) == (True, None)
    assert facts.runs_source is ("are not those of" not in notes)


def test_chats_of_token_ids_need_a_server_that_takes_them(serve: Serve, connect: Open) -> None:
    assert connect(serve(), chat="true").facts.is_remote
    with pytest.raises(BackendUnavailable, match="leave --llm-chat out"):
        connect(serve(takes_ids=False), chat="true")


def test_the_model_is_the_one_that_is_listed_or_named(serve: Serve, connect: Open) -> None:
    several = serve(models=("one", "two"))
    with pytest.raises(EndpointFailed, match="give --llm-endpoint-model the model to ask for; it lists one, two"):
        connect(several)
    assert connect(several, endpoint_model="two").facts.label.startswith("two at")
    with pytest.raises(EndpointFailed, match="it lists none"):
        connect(serve(models=()))
    with pytest.raises(EndpointFailed, match=r"it lists x+…x+$") as caught:  # bug: no reader took the run's label
        connect(serve(models=("x" * 2_000_000,)))
    assert len(str(caught.value)) < 500
    with pytest.raises(EndpointFailed, match=r"it lists a, 0, .* and 80 more$"):
        connect(serve(models=("a", *map(str, range(99)))))


def test_a_text_that_ends_early_is_a_reason_and_no_figure(serve: Serve, connect: Open) -> None:
    model = connect(serve(is_strict=True, ends_after=5))
    with pytest.raises(WorkloadUnsupported, match="ended a text after 5 of 8 tokens, and takes no exact length"):
        run_round(model, workload(20))
    assert len(run_round(model, workload(20, new_tokens=5)).continuations[0]) == 5


def test_under_load_a_text_that_ends_early_is_an_answer(serve: Serve, connect: Open) -> None:
    server = serve(is_strict=True, ends_after=5)
    model = connect(server)
    (found,) = run_open_loop(model, (0.0,), ((7, 8),), 8)
    assert (found.tokens, found.failure) == (5, "")
    server.manner = replace(server.manner, ends_after=0)
    (found,) = run_open_loop(model, (0.0,), ((7, 8),), 8)
    assert (found.tokens, found.failure) == (0, "the server ended the text before its first token")


def test_a_load_may_have_as_many_connections_as_the_system_allows(serve: Serve, connect: Open) -> None:
    resource = pytest.importorskip("resource")
    model = connect(serve())
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def soft(_: object) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard - 1, 512), hard))
    try:
        within = model.run_requests(soft)
        after, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
    assert (within, after) == (hard, min(hard - 1, 512))


def test_a_server_that_tells_no_number_of_tokens_is_refused(serve: Serve, connect: Open) -> None:
    with pytest.raises(EndpointFailed, match="reports neither token ids nor usage"):
        connect(serve(tells_usage=False, tells_ids=False))


def test_padding_that_no_request_has_is_refused(serve: Serve, connect: Open) -> None:
    model = connect(serve())
    with pytest.raises(WorkloadUnsupported, match="have no padding"):
        run_round(model, workload(20, 30, padding=Padding(at_least=64)))


@pytest.mark.parametrize("scoring", ["prompt_logprobs", "echo"])
def test_perplexity_is_that_of_the_prompts_likelihoods(scoring: str, serve: Serve, connect: Open) -> None:
    """No token of the corpus is one more than the one before it, so each has the likelihood of an unlikely one."""
    model = connect(serve(scoring=scoring))
    assert isinstance(model, ScoresTokens)
    assert isinstance(model, TakesRequests)
    assert model.token_log_likelihoods([(5, 6, 9)]) == [(LIKELY, UNLIKELY)]
    score = score_corpus(model, Corpus("two texts", ("The hen. " * 9, "The keeper. " * 9)), WindowPlan())
    assert score.metrics["perplexity"] == pytest.approx(math.exp(-UNLIKELY))


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        pytest.param({"scoring": "ignored"}, "prompt_logprobs: it was ignored; echo: it was ignored", id="ignored"),
        pytest.param(
            {"scoring": "wrong"}, "-0.50 nats when it was generated, and 0.00 in a prompt", id="wrong numbers"
        ),
        pytest.param({"scoring": "wrong", "is_sure": True}, "every token .* is as good as certain", id="zeros"),
        pytest.param({"takes_ids": False}, "takes no prompts in the tokens of --llm-model", id="no token ids"),
    ],
)
def test_likelihoods_that_are_not_those_of_the_prompt_are_noticed(
    manner: dict, reason: str, serve: Serve, connect: Open
) -> None:
    with pytest.raises(WorkloadUnsupported, match=reason):
        connect(serve(**manner)).token_log_likelihoods([(5, 6)])


def test_a_server_of_openais_interface_alone_is_scored_by_echo(serve: Serve, connect: Open) -> None:
    """Bug: the token that it generates was known by its id only, which is vLLM's and llama.cpp's to tell."""
    model = connect(serve(scoring="echo", is_strict=True, tells_ids=False))
    assert model.token_log_likelihoods([(5, 6, 9)]) == [(LIKELY, UNLIKELY)]


def test_a_window_that_the_server_has_no_room_for_is_the_reason(serve: Serve, connect: Open) -> None:
    model = connect(serve(takes_full_prompts=False))
    with pytest.raises(WorkloadUnsupported, match=r"in a context of 512 was refused .* smaller --llm-window"):
        model.token_log_likelihoods([FULL])


@pytest.mark.parametrize(
    ("status", "is_refused"),
    [(400, True), (413, True), (422, True), (401, False), (429, False), (500, False), (503, False)],
)
def test_a_smaller_window_is_advised_where_the_window_is_at_fault(
    status: int, is_refused: bool, serve: Serve, connect: Open
) -> None:
    """Bug: it was after any error, such as that of an overloaded server."""
    server = serve()
    model = connect(server)
    server.manner = replace(server.manner, refuses=lambda _: status)
    with pytest.raises(WorkloadUnsupported, match=f"{status} .*not now") as failed:
        model.token_log_likelihoods([FULL])
    assert ("smaller --llm-window" in str(failed.value)) is is_refused


def test_against_a_reference_of_the_same_tokens_its_perplexity_is_compared(
    serve: Serve, connect: Open, tiny_fp32, tmp_path
) -> None:
    corpus, plan = Corpus("a text", ("The keeper climbed the stairs at dusk. " * 5,)), WindowPlan()
    reference = score_corpus(tiny_fp32, corpus, plan, keep=tmp_path)
    score = score_corpus(connect(serve()), corpus, plan, compare_with=tmp_path)
    ratio = score.metrics["perplexity"] / reference.metrics["perplexity"]
    assert score.metrics["ppl_ratio"] == pytest.approx(ratio, rel=1e-4)
    assert "kld_mean" not in score.metrics


class TestTheKey:
    """It goes to the server in a header, and nowhere else."""

    KEY = "sk-CDB8f2-not-to-be-seen"

    @pytest.fixture(autouse=True)
    def key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LLM_BENCH_ENDPOINT_KEY", f"{self.KEY}\n")  # as `$(cat file)` wouldn't, but a file may

    def test_it_is_in_each_request_and_in_no_fact(self, serve: Serve, connect: Open) -> None:
        server = serve(models=(f"model of {self.KEY}",))
        model = connect(server)
        assert {one.headers["Authorization"] for one in server.seen} == {f"Bearer {self.KEY}"}
        assert "model of [key]" in model.facts.label
        assert self.KEY not in repr(
            (model.facts, vars(model._served.asker.client), model._served.asker.client._http.headers)
        )

    def test_an_error_that_repeats_it_hides_it(self, serve: Serve, connect: Open) -> None:
        server = serve()
        model = connect(server)
        server.manner = replace(server.manner, fault=lambda _: "500")
        with pytest.raises(EndpointFailed, match=r"500 Internal Server Error: broken with Bearer \[key\]"):
            run_round(model, workload(20))

    @pytest.mark.parametrize("fault", ["key in body", "key in text", "key in retry", "key in type", "key in event"])
    def test_a_cut_leaves_no_part_of_it(self, fault: str, serve: Serve, connect: Open) -> None:
        """The server repeats the key where a reason is cut, or its case changed."""
        server = serve()
        model = connect(server)
        server.manner = replace(server.manner, fault=lambda _: fault)
        with pytest.raises(EndpointFailed) as failed:
            run_round(model, workload(20))
        assert "[key" in str(failed.value)
        assert not any(part.lower() in str(failed.value).lower() for part in (self.KEY[:4], self.KEY[3:9]))

    @pytest.mark.parametrize(
        ("said", "shown"),
        [
            pytest.param(KEY.upper(), "[key]", id="capitals"),
            pytest.param(quote(KEY, safe="").replace("-", "%2D"), "[key]", id="a URL's escapes"),
            pytest.param("".join(f"%{ord(one):02x}" for one in KEY), "[key]", id="all in a URL's escapes"),
            pytest.param("".join(f"\\u{ord(one):04x}" for one in KEY), "[key]", id="JSON's escapes"),
            pytest.param(KEY.replace("-", "&#45;"), "[key]", id="a page's escapes"),
            pytest.param(KEY.replace("-", r"\-"), "[key]", id="backslashes"),
            pytest.param(f"{KEY[:8]}***{KEY[-4:]}", "[key]***seen", id="in part"),
            pytest.param(f"{KEY}{KEY}", "[key]", id="twice"),
            pytest.param("100 % of it, &c.", "100 % of it, &c.", id="nothing of it"),
        ],
    )
    def test_it_is_hidden_however_it_is_spelled(self, said: str, shown: str) -> None:
        """Bug: only where it was spelled exactly so."""
        assert Key(self.KEY).hide(f"for {said}!") == f"for {shown}!"
        assert Key("none").hide("None for none, none-too") == "None for [key], [key]-too"
        assert Key("").hide(said) == said

    def test_a_redirect_takes_it_nowhere(self, serve: Serve, connect: Open) -> None:
        elsewhere = serve()
        server = serve(fault=lambda _: f"redirect {elsewhere.url}/completions?{self.KEY}")
        with pytest.raises(EndpointFailed, match=r"redirected to http://127.0.0.1:\d+/v1/completions\.") as failed:
            connect(server)
        assert elsewhere.seen == []
        assert self.KEY not in str(failed.value)

    def test_a_server_with_a_name_has_a_key_of_its_own(
        self, serve: Serve, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = serve()
        named = make_request(replace(ENDPOINT, id="endpoint-mine"), endpoint=f"mine={server.url}")
        load_variant(named).close()
        assert not any("Authorization" in one.headers for one in server.seen)
        monkeypatch.setenv("LLM_BENCH_ENDPOINT_KEY_MINE", "another")
        load_variant(named).close()
        assert server.seen[-1].headers["Authorization"] == "Bearer another"


def test_prompts_of_a_load_are_as_long_as_asked_for_and_begin_unlike_each_other(prompts: Prompts) -> None:
    made = [prompts.unlike(33, number, f"{number}" * 20) for number in range(4)]
    assert {len(one) for one in made} == {33}
    assert len({one[:8] for one in made}) == 4
