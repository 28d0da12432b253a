"""Lanes: the shorter way leads where the router would have led."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from starlette.routing import Match, Route

from service.api.app import routed
from service.api.endpoint import ModelEndpoint
from service.api.gates import GatesEndpoint, LesionEndpoint
from service.api.open_inference import InferEndpoint
from service.api.predict import PredictEndpoint
from service.http import lane as module
from service.http.body import CompleteBody
from service.http.lane import Lanes
from tests.support.in_process_worker import loaded


@pytest.fixture(scope="module")
def routes() -> list[Route]:
    """All raw routes of the service, in their order."""
    application = loaded().app
    app = routed(application.parts, application.is_ready)
    return [route for route in app.router.routes if type(route) is Route]


@pytest.fixture
def lanes(routes: list[Route]) -> Lanes:
    return Lanes(routes)


def matched(routes: list[Route], path: str) -> tuple[str, dict[str, str]] | None:
    """The route that a router finds for a POST, and what is in the address."""
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "root_path": ""}
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            return route.path, found["path_params"]
    return None


@pytest.mark.parametrize(
    ("address", "kind", "params"),
    [
        ("/v2/models/net/infer", InferEndpoint, {"model": "net"}),
        ("/v2/models/net/versions/3/infer", InferEndpoint, {"model": "net", "version": "3"}),
        ("/v1/models/net:predict", PredictEndpoint, {"model": "net"}),
        ("/v1/models/net/versions/3:predict", PredictEndpoint, {"model": "net", "version": "3"}),
        ("/v1/models/a:b:predict", PredictEndpoint, {"model": "a:b"}),
        ("/v2/models/net/gates", GatesEndpoint, {"model": "net"}),
        ("/v2/models/net/versions/3/lesion", LesionEndpoint, {"model": "net", "version": "3"}),
    ],
)
def test_the_routes_that_run_a_model_have_lanes(
    lanes: Lanes, routes: list[Route], address: str, kind: type[ModelEndpoint], params: dict[str, str]
) -> None:
    """With what the address says of the model; the same lane each time."""
    lane = lanes.find(address.encode())
    assert lane is not None
    assert type(lane.endpoint) is kind
    assert lane.endpoint is lane.guarded.endpoint
    assert lane.guarded.level == "api"
    assert (lane.path, lane.params) == (address, params)
    assert (lane.route, dict(lane.params)) == matched(routes, address)
    assert lanes.find(address.encode()) is lane


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/",
        "*",
        "/v2/models/net/infer?",
        "/v2/models/net/infer?detail=rows",
        "/v2/models/net/infer#here",
        "/v2/models/n%65t/infer",
        "/v2/models/net/infer/",
        "//v2/models/net/infer",
        "/v2/models//infer",
        "/v2/models/net/extra/infer",
        "http://x/v2/models/net/infer",
        "/v2/models/net",
        "/v2/models/net/ready",
        "/v2/models/net/certificate",
        "/v2/models/net/gates/profile",
        "/v2/models/net/gates/drift",
        "/v2/repository/models/net/load",
        "/v2/models/net/infer\n",
        "/v2/models/n t/infer",
        "/v2/models/n\u00e9t/infer",
    ],
)
def test_what_is_in_any_way_odd_has_none(lanes: Lanes, address: str) -> None:
    """What has a query, or is encoded, or leads elsewhere is for the router."""
    for _ in range(2):
        assert lanes.find(address.encode("latin-1")) is None


def test_lanes_lead_where_the_router_does(lanes: Lanes, routes: list[Route]) -> None:
    """Whatever the address: none has a lane that is not that of its route."""
    drawn = random.Random(3)
    parts = ["", "v1", "v2", "models", "net", "n:predict", "versions", "1", "1:predict", "infer", "gates"]
    parts += ["lesion", "profile", "drift", "samples", ".", "..", "infer?", "%2e", "a~b"]
    hits = 0
    for _ in range(6000):
        words = drawn.choices(parts, k=drawn.randrange(1, 7))
        if drawn.random() < 0.5:
            words[:2] = drawn.choice([["v1", "models"], ["v2", "models"]])
        path = "/" + "/".join(words)
        lane = lanes.find(path.encode())
        if lane is not None:
            hits += 1
            assert (lane.route, dict(lane.params)) == matched(routes, path)
            assert lane.path == path
    assert hits > 40


def test_every_lane_takes_posts(routes: list[Route]) -> None:
    """A request of that method alone may go there."""
    for route in routes:
        if isinstance(getattr(route.endpoint, "endpoint", None), ModelEndpoint):
            assert route.methods == {"POST"}


def test_addresses_do_not_pile_up(lanes: Lanes) -> None:
    """Whoever asks for another with each request, or for very long ones, fills no memory."""
    for number in range(2 * module.MOST + 1):
        assert lanes.find(b"/v2/models/%d/infer" % number) is not None
        assert lanes.find(b"/nothing/%d" % number) is None
        assert len(lanes._known) <= module.MOST
    lanes = Lanes([])
    assert lanes.find(b"/v2/models/%b/infer" % (b"m" * module.LONGEST)) is None
    assert not lanes._known


def test_a_long_address_has_none(lanes: Lanes) -> None:
    """Of one the log shows a part, and the ordinary way knows which."""
    for size in (module.LONGEST, module.LONGEST + 1):
        name = b"m" * (size - len(b"/v2/models//infer"))
        assert (lanes.find(b"/v2/models/%b/infer" % name) is not None) is (size == module.LONGEST)


def test_a_body_that_is_there_is_held_while_it_is_read(lanes: Lanes) -> None:
    """It counts from its first use to its last, whatever becomes of it."""
    lane = lanes.find(b"/v2/models/net/infer")
    assert lane is not None

    async def use(whole: CompleteBody) -> None:
        async with whole as body:
            assert body == b"abc"
            assert lane.held.bytes == 3
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(use(lane.held.whole(b"abc")))
    assert lane.held.bytes == 0
