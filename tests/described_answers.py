"""Answers of an application held against its own OpenAPI document."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

Json = dict[str, Any]


@lru_cache(maxsize=8)
def described_answers(document: str) -> DescribedAnswers:
    """Of the text that `/openapi.json` answers."""
    return DescribedAnswers(orjson.loads(document))


class DescribedAnswers:
    """The document of an application, which is a valid one."""

    def __init__(self, document: Json) -> None:
        validate(document)
        self._document = document
        # The first is the one that aiohttp takes: fixed words before patterns.
        self._paths = sorted(document["paths"], key=lambda path: [part.startswith("{") for part in path.split("/")])

    def check(self, method: str, url: str, status: int, media_type: str, text: str) -> None:
        """Fail unless the answer is as the document has it."""
        operation = self._operation(method.lower(), url.partition("?")[0])
        if operation is None:
            assert status in (404, 405), (method, url, status)
            return
        responses = operation["responses"]
        described = responses.get("200" if status == 200 else "default")
        assert described is not None, (method, url, status)
        content = described["content"].get(media_type)
        if content is None:
            # Some errors are plain texts.
            assert status >= 300, (method, url, media_type)
            return
        value = orjson.loads(text) if media_type == "application/json" else text
        schema = {**content["schema"], "components": self._document["components"]}
        problems = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(value)]
        assert not problems, (method, url, status, problems, text[:500])

    def _operation(self, method: str, path: str) -> Json | None:
        for template in self._paths:
            pattern = re.sub(r"\\\{[a-z]+\\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, path) and method in self._document["paths"][template]:
                found: Json = self._document["paths"][template][method]
                return found
        return None
