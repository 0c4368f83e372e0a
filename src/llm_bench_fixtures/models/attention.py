"""The attention implementation that a run or a variant asks for: which there are, and which of them a model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, UnknownName, first_line
from llm_bench_fixtures.models.variants import Precision

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from llm_bench_fixtures.models.backend import LoadRequest

EAGER = "eager"
FLASH = "flash_attention_"  # and a version


def asked_attention(request: LoadRequest) -> str:
    """The variant's own, or that of --llm-attention. Empty: the model's own choice."""
    return request.variant.attention or request.settings.attention


def known_attentions() -> tuple[str, ...]:
    """The names that transformers has for them.

    Kinds for a paged cache are left out, as `generate` has none, and so are kernels from the hub, which are compiled
    code of others.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    names = sorted({EAGER, *ALL_ATTENTION_FUNCTIONS.valid_keys()})
    return tuple(name for name in names if "paged" not in name and "/" not in name)


def attention_in_words(name: str) -> str:
    """The name as sentences and labels have it; empty for none."""
    return f"{name} attention" if name and "attention" not in name else name


def check_known(name: str) -> None:
    """Raise InvalidSetting for a name that isn't among them."""
    known = known_attentions()
    if name and name not in known:
        raise InvalidSetting(f"--llm-attention: {UnknownName('attention implementation', name, known)}")


def check_attention(request: LoadRequest) -> None:
    """Raise BackendUnavailable, with those that can be had, where the model can't run here with what is asked for.

    Checks the model's shape, without its weights.
    """
    name = asked_attention(request)
    if not name:
        return
    check_known(name)
    config, trusts = request.source.load_config(), request.source.trust_remote_code
    reason = _refusal(config, name, trust_remote_code=trusts)
    if reason:
        others = [other for other in known_attentions() if not _refusal(config, other, trust_remote_code=trusts)]
        there_are = ", ".join(others) or "none"
        raise BackendUnavailable(
            f"{config.model_type} can't run with {attention_in_words(name)} here, but with {there_are}: {reason}"
        )


def _refusal(config: PretrainedConfig, name: str, *, trust_remote_code: bool) -> str:
    """Why a model of the config can't have the attention; empty where it can."""
    from llm_bench_fixtures.models.architecture import without_weights

    if name.startswith(FLASH) and not _has_flash(name):
        return f"no {name.replace('attention', 'attn')} that runs here is installed"
    try:
        module = without_weights(config, trust_remote_code, attn_implementation=name)
    except Exception as error:  # what transformers raises depends on the implementation, and has no narrower base
        return first_line(error).partition(". ")[0]
    actual = attention_of(module.config)
    return "" if actual == name else f"transformers runs it with {actual or 'none'}"


def _has_flash(name: str) -> bool:
    """Asked before transformers is, which would load a kernel from the hub in its place."""
    import transformers.utils

    version = name.removeprefix(FLASH)
    return bool(getattr(transformers.utils, f"is_flash_attn_{version}_available", lambda: False)())


def attention_of(config: PretrainedConfig) -> str:
    """The implementation that a loaded model's config names; empty where it names none."""
    return str(getattr(config.get_text_config(), "_attn_implementation", None) or "")


def check_dtype(request: LoadRequest, weights: Precision) -> None:
    """Raise BackendUnavailable where flash attention is asked for and would get float32. weights: their dtype."""
    name = asked_attention(request)
    if name.startswith(FLASH) and (request.variant.autocast or weights) is Precision.FLOAT32:
        raise BackendUnavailable(f"{name} computes in 16 bits only, and {request.variant.id} computes in float32")


def attention_choice(request: LoadRequest) -> dict[str, str]:
    """The keyword for transformers' loading; none where it is the model's own choice."""
    name = asked_attention(request)
    return {"attn_implementation": name} if name else {}
