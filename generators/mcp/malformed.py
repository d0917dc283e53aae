"""Answers to what is no message: the protocol's SDK drops it, and a client would wait for ever."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable
from typing import Any

from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError


async def sift(
    read: AsyncIterable[SessionMessage | Exception], answers: Any, messages: MemoryObjectSendStream[SessionMessage]
) -> None:
    """Pass on what is a message, and answer what is none."""
    async with messages:
        async for item in read:
            if isinstance(item, SessionMessage):
                await messages.send(item)
            elif (told := answer(item)) is not None:
                await answers.send(told)


def answer(error: Exception) -> SessionMessage | None:
    """The error for a line that the SDK could not read, with the id of its request where one can be told."""
    if not isinstance(error, ValidationError):
        return _told(None, PARSE_ERROR, "not readable")
    found = error.errors(include_url=False, include_context=False)
    if found[0]["type"] != "json_invalid":
        wholes = [one["input"] for one in found if one["type"] == "missing" and len(one["loc"]) == 2]
        given = next(iter(wholes), None)
        return _told(given, INVALID_REQUEST, "no JSON-RPC 2.0 request, notification or response")
    line = found[0]["input"]
    if not line.strip():
        return None
    try:  # with what Python reads and the SDK does not: half a surrogate pair, for one
        given = json.loads(line)
    except (ValueError, RecursionError):
        given = None
    code = INVALID_PARAMS if _request(given) else PARSE_ERROR
    return _told(given, code, found[0]["msg"])


def _request(given: Any) -> bool:
    """Whether it has an id that an answer can name, and is no answer itself."""
    if not isinstance(given, dict) or not given.keys().isdisjoint(("result", "error")):
        return False
    name = given.get("id")
    if isinstance(name, str):
        return name.encode(errors="replace").decode() == name
    return isinstance(name, int) and not isinstance(name, bool)


def _told(given: Any, code: int, message: str) -> SessionMessage:
    name = given["id"] if _request(given) else None
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=name, error=ErrorData(code=code, message=message)))
