"""The OpenAPI document: made from the routes, so nothing of it can be missing."""

from __future__ import annotations

import json

from eruca._console.api import list_api_routes, write_document
from eruca._console.identity.rights import Need
from eruca._console.routes import ROUTES


def test_every_route_of_a_cluster_is_in_the_document() -> None:
    document = write_document(ROUTES)
    json.dumps(document)
    assert document["openapi"].startswith("3.1")
    paths = {f"/api{route.path}" for route in list_api_routes(ROUTES)}
    assert document["paths"].keys() == paths and len(paths) > 30
    create = document["paths"]["/api/c/{cluster}/new/topic"]["post"]
    schema = create["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["topic"] and schema["properties"]["queues"]["minimum"] == 1
    assert create["security"] == [{"session": [], "token": []}]


def test_routes_have_what_the_document_and_the_frame_need() -> None:
    for route in ROUTES:
        assert isinstance(route.need, Need)
        if route in list_api_routes(ROUTES):
            assert route.summary.endswith("."), route.path
        for parameter, kind in route.names.items():
            assert kind in ("topic", "group") and parameter, route.path
    # A change of a cluster needs more than looking.
    mine = {"/c/{cluster}/topics/{topic}/favourite"}
    posts = [route for route in ROUTES if "POST" in route.methods and route.path.startswith("/c/")]
    weak = [route.path for route in posts if route.need < Need.OPERATE and route.path not in mine]
    assert weak == ["/c/{cluster}/messages/filters"]
