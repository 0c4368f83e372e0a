"""What the page embeds can neither end its element nor run anything else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_bench_fixtures.report.renderers.html import content_policy, embedded_json, page_scripts


@given(st.text())
def test_embedded_text_is_the_same_text_and_holds_no_markup(text: str) -> None:
    embedded = embedded_json({"text": text})
    assert json.loads(embedded) == {"text": text}
    assert not set(embedded) & {"<", ">", "&", "\u2028", "\u2029", "\0"}
    assert embedded.isascii()


def test_an_end_tag_in_the_data_is_none() -> None:
    assert embedded_json("</script><!--") == '"\\u003c/script\\u003e\\u003c!--"'


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded_json(float("nan"))


def test_the_policy_names_the_scripts_by_their_digests_and_allows_no_network() -> None:
    digest = base64.b64encode(hashlib.sha256(b"alert(1)").digest()).decode()
    policy = content_policy(["alert(1)"])
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    assert "script-src 'none';" in content_policy([])


def test_the_policy_knows_what_is_packed_and_no_script_ends_its_element() -> None:
    scripts = page_scripts()
    plotly = gzip.decompress(base64.b64decode(scripts.packed_plotly)).decode()
    assert "plotly.js" in plotly[:200]
    assert "Plotly.react" in scripts.own
    assert scripts.policy == content_policy((plotly, scripts.own))
    assert "\r" not in plotly + scripts.own
    assert "</script" not in scripts.own.lower()
    assert "<!--" not in scripts.own
