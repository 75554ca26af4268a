"""The API's description: bodies that FastAPI cannot know, since the service reads them itself."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from lehd.service import schemas
from lehd.service.vroom import VroomRequest

ABOUT = """Solves tours (TSP) and vehicle routes (CVRP) with a learned model. Bodies are VROOM's JSON, TSPLIB or CVRPLIB
text, or a CSV table; answers have VROOM's shape."""

EXAMPLE = {
    "vehicles": [{"id": 1, "start": [2.3522, 48.8566], "end": [2.3522, 48.8566]}],
    "jobs": [{"id": 1, "location": [2.3376, 48.8606]}, {"id": 2, "location": [2.2945, 48.8584]}],
}
_TEXT = {"schema": {"type": "string"}}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/VroomRequest"}, "example": EXAMPLE},
            "text/plain": {**_TEXT, "example": "TYPE : TSP\nDIMENSION : 2\nEDGE_WEIGHT_TYPE : EUC_2D\n…"},
            "text/csv": {**_TEXT, "example": "x,y\n0,0\n3,4\n6,0\n"},
        },
    }
}
SOLUTION_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"text/plain": {**_TEXT, "example": "Route #1: 1 2\nCost 7\n"}}}
}
_EVENT = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["state", "progress", "incumbent", "end"]},
        "id": {"type": "string"},
        "data": {"type": "string", "description": "JSON; of `end` a JobRecord"},
    },
}
STREAM: dict[str, Any] = {
    "content": {"text/event-stream": {"schema": _EVENT}},
    "description": "`state` and `progress`, `incumbent` for every improvement, `end` at last",
}
FILE: dict[str, Any] = {"content": {"text/plain": _TEXT, "application/json": {"schema": {}}}, "description": "The file"}
_WORDS = {
    400: "A body that ended early",
    401: "A key is missing",
    404: "There is no such job",
    408: "The body took too long to arrive",
    409: "It does not go with the job's state",
    413: "The body is too large",
    415: "The body is compressed, or a form",
    422: "Bad input; the message names the field or the line. Also: a plan needs more routes than there are vehicles",
    429: "Too many jobs or requests; Retry-After says when to come again",
}


def errors(answer: type[BaseModel] | None, *statuses: int, ok: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a route may answer."""
    found: dict[int | str, dict[str, Any]] = {
        status: {"model": schemas.Error, "description": _WORDS[status]} for status in (401, *statuses)
    }
    return found if answer is None else {ok: {"model": answer}, **found}


def describe(app: FastAPI) -> None:
    """Put VROOM's request among the schemas."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
            template = "#/components/schemas/{model}"
            request = VroomRequest.model_json_schema(ref_template=template)
            document["components"]["schemas"] |= {**request.pop("$defs"), "VroomRequest": request}
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
