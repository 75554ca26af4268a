"""Errors as answers: one shape for all of them, VROOM's."""

from __future__ import annotations

import logging
import sqlite3

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from lehd.errors import LehdError
from lehd.service.bodies import BodyError
from lehd.service.desk import ConflictError
from lehd.service.jobs import TooManyError
from lehd.service.vroom import in_words

log = logging.getLogger("lehd.service")


def answer_mistakes(app: FastAPI) -> None:
    def complain(status: int, message: str, **headers: str) -> Response:
        return JSONResponse({"code": 2, "error": message}, status, headers=headers)

    @app.exception_handler(LehdError)
    async def bad_input(_: Request, error: LehdError) -> Response:
        message = " ".join(str(error).split())
        if isinstance(error, TooManyError):
            return complain(429, message, **{"retry-after": str(error.retry_after)})
        if isinstance(error, BodyError):
            return complain(error.status, message, connection="close")
        return complain(409 if isinstance(error, ConflictError) else 422, message)

    @app.exception_handler(sqlite3.Error)
    async def not_stored(_: Request, error: sqlite3.Error) -> Response:
        log.error("the jobs' database failed: %s", error)
        return JSONResponse({"code": 1, "error": "the jobs' database cannot be used right now"}, 503)

    @app.exception_handler(RequestValidationError)
    async def bad_parameter(_: Request, error: RequestValidationError) -> Response:
        found = error.errors()[0]
        return complain(422, in_words(tuple(found["loc"][1:]), found["type"], found["msg"]))

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        return complain(error.status_code, str(error.detail), **(error.headers or {}))
