"""What a profile is made of, and those that come with the gateway."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from gateway.sdk import Options
from plugins.envelope import facts, template


class Profile(Options):
    """The shape of everything that a caller hears. A part that is not given is told in OpenAI's form."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="its name in /b/<name>/v1/…")
    answer: dict[str, Any] | None = Field(default=None, description="a whole answer of chat or completions")
    error: dict[str, Any] | None = Field(default=None, description="a failure, also in the middle of a stream")
    event: dict[str, Any] | None = Field(default=None, description="a piece of a stream")
    last: dict[str, Any] | None = Field(default=None, description="the end of a stream; answer, if only that is given")
    other: dict[str, Any] | None = Field(default=None, description="any other answer: embeddings, models")
    done: bool = Field(default=True, description="a stream ends with data: [DONE]")

    @model_validator(mode="after")
    def _refers_to_what_there_is(self) -> Profile:
        for part, known in (
            ("answer", facts.ANSWER),
            ("last", facts.ANSWER),
            ("event", facts.EVENT),
            ("other", facts.OTHER),
            ("error", {*facts.ERROR, *facts.MAPPED}),
        ):
            template.check(getattr(self, part), known, part)
        return self


_META = {"latency_ms": "$latency_ms", "model": "$model"}
_SAID = {"confidence": "$confidence", "tokens": "$tokens", "warning_tags": "$warning_tags"}
_MORE = {
    **_META,
    "request_id": "$request_id",
    "finish_reason": "$finish_reason",
    "confidence": "$confidence",
    "warning_tags": "$warning_tags",
    "usage": "$usage",
}

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(name="openai"),
        Profile(
            name="code_data",
            answer={"code": 0, "data": {"text": "$text", **_SAID}, "meta": _META},
            error={"code": "$code", "msg": "$message", "meta": _META},
            event={"code": 0, "data": {"text": "$piece"}, "meta": {"model": "$model"}},
            last={"code": 0, "data": {"text": "", **_SAID}, "meta": _META},
            other={"code": 0, "data": "$body", "meta": _META},
        ),
        Profile(
            name="result_meta",
            answer={"result": "$text", "meta": _MORE},
            error={
                "result": None,
                "error": {"code": "$code", "message": "$message"},
                "meta": {**_META, "request_id": "$request_id"},
            },
            event={"result": "$piece"},
            last={"result": "", "meta": _MORE},
            other={"result": "$body", "meta": {**_META, "request_id": "$request_id"}},
        ),
    )
}

#: What code_data says in place of our messages, by error code.
MESSAGES: dict[str, dict[str | int, str]] = {
    "code_data": {
        "content_filter": "检测到敏感内容",
        "invalid_api_key": "密钥缺失或无效",
        "model_not_allowed": "该密钥无权使用此模型",
        "model_not_found": "模型不存在",
        "not_found": "接口不存在",
        "request_too_large": "请求体过大",
        "request_timeout": "请求未在时限内传完",
        "rate_limit_exceeded": "请求过于频繁，请稍后再试",
        "queue_full": "模型繁忙，请稍后再试",
        "internal_error": "网关内部错误",
        "engine_error": "模型服务异常",
        "no_engine_available": "暂无可用的模型服务，请稍后再试",
        "filter_unavailable": "内容检查暂不可用，请稍后再试",
        "engine_timeout": "模型响应超时",
    }
}
