from __future__ import annotations

import json
import re

from fastapi.openapi.models import OpenAPI

from gateway import errors
from gateway.openapi import describe, page
from gateway.protocol.surface import POSTED, SURFACES


def test_the_document_is_valid_openapi() -> None:
    assert OpenAPI.model_validate(describe("1.2.3")).info.version == "1.2.3"


def test_every_route_of_the_data_path_is_described_with_an_example() -> None:
    paths = describe("1")["paths"]
    assert paths.keys() >= SURFACES.keys()
    for route in POSTED:
        content = paths[route]["post"]["requestBody"]["content"]["application/json"]
        assert set(content["schema"]["required"]) <= set(content["example"])
        assert set(content["example"]) <= set(content["schema"]["properties"])


def test_streams_are_described_as_events() -> None:
    for route in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"):
        assert "text/event-stream" in describe("1")["paths"][route]["post"]["responses"]["200"]["content"]


def test_every_failure_s_status_and_code_is_described() -> None:
    responses = describe("1")["paths"]["/v1/chat/completions"]["post"]["responses"]
    pending = list(errors.Failure.__subclasses__())
    while pending:
        failure = pending.pop()
        pending += failure.__subclasses__()
        if failure not in {errors.NotFound, errors.Refused}:
            assert str(failure.code) in responses[str(failure.status)]["description"]


def test_every_reference_leads_somewhere() -> None:
    document = describe("1")
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)):
        assert name in document["components"]["schemas"]


def test_the_page_loads_nothing_from_elsewhere_and_escapes_what_it_shows() -> None:
    document = describe("<script>")
    html = page(document)
    assert "http:" not in html
    assert "https:" not in html
    assert "<script" not in html
    assert "max_tokens" in html
