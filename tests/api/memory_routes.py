"""Routes of the memory that name a page, each with a request that would change or read one."""

from __future__ import annotations

from typing import Any

ROUTES: dict[str, dict[str, Any]] = {
    "GET /api/pages/{slug}": {},
    "PUT /api/pages/{slug}": {"json": {"body": "another"}},
    "PATCH /api/pages/{slug}": {"json": {"operation": "append", "content": "more"}},
    "DELETE /api/pages/{slug}": {},
    "GET /api/versions/{slug}": {},
    "POST /api/versions/{slug}": {"json": {"version": 1}},
    "GET /api/links/{slug}": {},
    "POST /api/links/{slug}": {"json": {"to": "x"}},
    "DELETE /api/links/{slug}": {"params": {"to": "x"}},
    "GET /api/backlinks/{slug}": {},
    "GET /api/traverse/{slug}": {},
    "GET /api/timeline/{slug}": {},
    "POST /api/timeline/{slug}": {"json": {"date": "2026", "summary": "x"}},
    "GET /api/tags/{slug}": {},
    "POST /api/tags/{slug}": {"json": {"tags": ["x"]}},
    "DELETE /api/tags/{slug}": {"json": {"tags": ["x"]}},
}
WRITES = {route for route in ROUTES if not route.startswith("GET")}
CREATES = "PUT /api/pages/{slug}"
