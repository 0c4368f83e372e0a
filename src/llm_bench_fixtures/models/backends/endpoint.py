"""A server with OpenAI's interface: `--llm-endpoint`. The model runs wherever the server has it; here is the client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.models.backend import Backend
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.options.parsers import Setting, parse_seconds, shortened

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.endpoint_model import EndpointModel
    from llm_bench_fixtures.models.loading import LoadRequest
    from llm_bench_fixtures.options.settings import Settings

NAME = "endpoint"  # backend's name, the unnamed variant's id, and what ids of named ones begin with
KEY = "LLM_BENCH_ENDPOINT_KEY"  # the environment variable; _NAME is added for a server with a name
_NAMED = re.compile(r"(?:([A-Za-z0-9._-]+)=)?(.*)")


def parse_endpoints(text: str) -> Mapping[str, str]:
    """Base URLs by the ids of their variants. Raises InvalidSetting, which quotes nothing that may be a secret."""
    found = parse_by_variant(text)
    for url in found.values():
        _check_url(url)
    keys = [key_variable(identifier) for identifier in found]
    if len(set(keys)) < len(keys):
        raise InvalidSetting(f"two servers would share a key, of {', '.join(sorted(keys))}: give them other names")
    return found


def parse_by_variant(text: str) -> Mapping[str, str]:
    """Values by the ids of their variants, from `VALUE` or `NAME=VALUE`, separated by commas."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, value = _NAMED.fullmatch(part).groups()  # type: ignore[union-attr]  # it matches every line
        identifier = f"{NAME}-{name}" if name else NAME
        if identifier in found:
            raise InvalidSetting(f"{identifier} is given twice: name each, as in first=VALUE,second=VALUE")
        found[identifier] = value
    return found


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidSetting("expected a URL such as http://127.0.0.1:8000/v1, got something else") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidSetting(f"a URL that holds a user name, a password or a query is refused: give the key in {KEY}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSetting(f"expected a URL such as http://127.0.0.1:8000/v1, got {_quoted(url)}")


def _quoted(url: str) -> str:
    """What has no scheme may be a key that was pasted there."""
    return shortened(url) if "://" in url else "a text without http:// or https://"


def key_variable(identifier: str) -> str:
    """The environment variable that holds the key for a variant's server, and for no other's."""
    name = identifier.removeprefix(NAME).removeprefix("-")
    return KEY + (re.sub(r"[^A-Z0-9]", "_", f"_{name.upper()}") if name else "")


ENDPOINT = Setting(NAME, parse_endpoints)
MODEL = Setting("endpoint_model", parse_by_variant)
TIMEOUT = Setting("endpoint_timeout", parse_seconds)


def variants_of(settings: Settings) -> tuple[Variant, ...]:
    """One for each server that was named. Raises InvalidSetting for a model of another server."""
    urls = settings.of(ENDPOINT)
    unknown = settings.of(MODEL).keys() - urls.keys()
    if unknown:
        raise InvalidSetting(
            f"--llm-endpoint-model: no server is {', '.join(sorted(unknown))}; "
            f"those of --llm-endpoint are {', '.join(urls) or 'none'}"
        )
    return tuple(Variant(identifier, NAME, f"the server at {url}") for identifier, url in urls.items())


def load(request: LoadRequest) -> EndpointModel:
    """Find out what the server does. Raises EndpointFailed where it does nothing of use."""
    from llm_bench_fixtures.models.backends.endpoint_model import open_endpoint

    identifier, settings = request.variant.id, request.settings
    url = settings.of(ENDPOINT).get(identifier)
    if url is None:
        raise InvalidSetting(f"{identifier} has no URL: give it in --llm-endpoint")
    return open_endpoint(request, url, settings.of(MODEL).get(identifier, ""), settings.of(TIMEOUT))


BACKEND = Backend(
    load,
    modules=("httpx2",),
    extra=NAME,
    imports=("httpx2",),
    variants_of=variants_of,
    takes_requests=True,
    is_served=True,
    takes_attention=False,
    threads_setting="",
    takes_quantized=True,  # the server has the weights
    loggers=("httpx2", "httpcore2"),
    options=(ENDPOINT, MODEL, TIMEOUT),
)
