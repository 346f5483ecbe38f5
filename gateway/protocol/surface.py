"""THE ROUTES: where text sits in requests and answers of each, and how they are handled. Nothing else is served.

Whoever handles an exchange asks its route's ``Surface``; nothing else knows in what routes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gateway.errors import Failure
from gateway.protocol import (
    failures,
    messages,
    messages_places,
    messages_whole,
    openai,
    places,
    replies,
    responses,
    responses_events,
    responses_places,
    scoring,
    unread,
)
from gateway.protocol.answer import Whole
from gateway.protocol.choices import Choice, Choices, MessageChoices, OwnChoices, ResponseChoices
from gateway.protocol.editing import Editor
from gateway.protocol.messages_stream import MessagesEditor
from gateway.protocol.openai import CHAT, COMPLETIONS, EMBEDDINGS, Asked, Ceilings
from gateway.protocol.places import Table, texts_in, values_in
from gateway.protocol.responses_stream import ResponsesEditor
from gateway.protocol.responses_whole import WholeResponse
from gateway.protocol.stream import StreamEditor, failure_event
from gateway.protocol.text import Text
from gateway.protocol.whole import WholeAnswer, WholeTexts, as_stream

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Keeping:
    """How engines keep the answers of a route.

    ``stamp`` (sent body, engine, owner) names the answer in place and returns where to stop what goes on without us;
    ``earlier`` (body) returns the answer from which a request goes on; ``keeper`` (answer, engines, owner) returns the
    engine that has it; ``not_found`` (answer, field) is the failure where none has.
    """

    stamp: Callable[[Body, str, str], str | None]
    earlier: Callable[[Body], str | None]
    keeper: Callable[[str, Iterable[str], str], str | None]
    not_found: Callable[[str, str], Failure]


_OWN = OwnChoices()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One route.

    ``request`` and ``answer`` say where text sits; ``own`` tells a plugin's reply (status and body) in the route's
    form, ``choices`` an answer in that of a chat; ``refusal`` turns an engine's answer that is none into a failure;
    ``echoes`` are fields of the request that the answer repeats, ``templated`` those that a count of tokens needs
    beside the messages. The defaults are those of OpenAI's older routes.
    """

    route: str
    request: Table
    answer: Table
    ask: Callable[[Body, frozenset[str]], Asked]
    clamp: Callable[[Body, Asked, Ceilings], None]
    for_engine: Callable[..., Body]
    has_token_ids: Callable[[Body], str | None] = unread.has_token_ids
    whole: Callable[..., Whole]
    editor: Callable[..., Editor] = StreamEditor
    as_stream: Callable[..., bytes] = as_stream
    failure_event: Callable[[Failure], bytes] = failure_event
    error_body: Callable[[Failure], Body] = Failure.body
    refusal: Callable[[int, bytes, str | None], Failure] = failures.from_engine
    own: Callable[[int, Body], Body] = replies.as_it_is
    templated: tuple[str, ...] = openai.TEMPLATED
    choices: Choices = _OWN
    echoes: tuple[str, ...] = ()
    keeping: Keeping | None = None


def _openai(route: str, answer: Table, whole: Callable[..., Whole], **more: Any) -> Surface:
    return Surface(
        route=route,
        request=places.REQUEST,
        answer=answer,
        ask=partial(openai.ask, route),
        clamp=partial(openai.clamp, route),
        for_engine=partial(openai.for_engine, route),
        whole=whole,
        **more,
    )


def _texts(answer: Table) -> Callable[..., Whole]:
    return partial(WholeTexts, readers=answer)


def _scoring(route: str, answer: Table) -> Surface:
    return Surface(
        route=route,
        request=scoring.REQUEST,
        answer=answer,
        ask=scoring.ask,
        clamp=scoring.clamp,
        for_engine=partial(openai.for_engine, route),
        has_token_ids=scoring.has_token_ids,
        whole=_texts(answer),
    )


_PROMPTED = tuple(name for name in openai.TEMPLATED if name != "tools")  # theirs have another form
_RESPONSES = Surface(
    route=responses.RESPONSES,
    request=responses_places.REQUEST,
    answer=responses_places.ANSWER,
    ask=responses.ask,
    clamp=responses.clamp,
    for_engine=responses.for_engine,
    has_token_ids=responses_places.has_token_ids,
    whole=WholeResponse,
    editor=ResponsesEditor,
    as_stream=responses_events.as_stream,
    failure_event=responses.failure_event,
    refusal=responses.from_engine,
    own=replies.as_response,
    choices=ResponseChoices(),
    templated=_PROMPTED,
    echoes=("instructions",),
    keeping=Keeping(responses.stamp, responses.earlier, responses.keeper, responses.not_found),
)
_MESSAGES = Surface(
    route=messages.MESSAGES,
    request=messages_places.REQUEST,
    answer=messages_places.ANSWER,
    ask=messages.ask,
    clamp=messages.clamp,
    for_engine=messages.for_engine,
    whole=messages_whole.WholeMessage,
    editor=MessagesEditor,
    as_stream=messages_whole.as_stream,
    failure_event=messages.failure_event,
    error_body=messages.error_body,
    own=replies.as_message,
    choices=MessageChoices(),
    templated=_PROMPTED,
)
_COUNT = replace(
    _MESSAGES,
    route=messages.COUNT_TOKENS,
    answer=messages_places.COUNTED,
    ask=partial(messages.ask, streams=False),
    clamp=messages.unclamped,
    whole=_texts(messages_places.COUNTED),
)
_POSTED = (
    _openai(CHAT, places.ANSWER, WholeAnswer),
    _openai(COMPLETIONS, places.ANSWER, WholeAnswer),
    _openai(EMBEDDINGS, {}, _texts({})),
    _RESPONSES,
    _MESSAGES,
    _COUNT,
    _scoring(scoring.RERANK, scoring.RERANKED),
    _scoring(scoring.SCORE, scoring.SCORED),
    _openai("/tokenize", {}, _texts({})),  # its strings are the request's, which were checked
    _openai("/detokenize", places.DETOKENIZED, _texts(places.DETOKENIZED), has_token_ids=unread.nowhere),
)
#: An answer that is asked for again, and one that is stopped; their requests have no body.
STORED = replace(
    _RESPONSES, route=f"{responses.RESPONSES}/{{id}}", request={}, whole=partial(WholeResponse, stored=True)
)
CANCELLED = replace(STORED, route=f"{STORED.route}/cancel")

#: What is asked with POST, by its path.
POSTED = {surface.route: surface for surface in _POSTED}
#: By the name of the route.
SURFACES = {**POSTED, **{surface.route: surface for surface in (STORED, CANCELLED)}}


def request_texts(route: str, body: Body) -> list[Text]:
    """Return every text of a request, in order; KeyError for a route whose texts nobody knows: it is not served."""
    return texts_in(SURFACES[route].request, body)


def answer_texts(route: str, body: Body) -> list[Text]:
    """Return every text of a whole answer, in order, names of members apart: a caller's program goes by them.

    KeyError for an unknown route.
    """
    return values_in(SURFACES[route].answer, body)


def choices(route: str, body: Body) -> list[Choice]:
    """Return what was answered as a chat tells it: the body's own choices, or one made of a response or a message."""
    return SURFACES[route].choices.of(body)


def put(route: str, body: Body, choice: Choice) -> None:
    """Write a choice's content, the arguments of its calls and a ``stop`` in its end back into the body it is of."""
    SURFACES[route].choices.put(body, choice)


def takes_shape(route: str) -> bool:
    """Say whether answers at a path have the form that a plugin's shape tells in its own: that of OpenAI's choices."""
    return not route.startswith((messages.MESSAGES, responses.RESPONSES))


def error_body(path: str, failure: Failure) -> Body:
    """Tell a failure in the shape of whatever is at a path, served or not."""
    return (messages.error_body if path.startswith(messages.MESSAGES) else Failure.body)(failure)
