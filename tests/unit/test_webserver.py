"""The web server: whom it hangs up on."""

import http.client
import time
from collections.abc import Iterator

import pytest
from starlette.responses import Response

from frostline import webserver
from frostline.webserver import Limits, WebServer

REQUEST_S = 1.0


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that says the same to everybody."""
    bound = webserver.bound("127.0.0.1", 0, failure="cannot listen on", hint="another port")
    server = WebServer(Response("here"), bound, Limits(8, REQUEST_S, 8192, 1), name="tests")
    yield server.port
    server.stop()


def lasts(port: int) -> bool:
    """Whether a client that goes on asking keeps its connection for longer than one that asks for nothing."""
    connection, ends = http.client.HTTPConnection("127.0.0.1", port, timeout=60), time.monotonic() + 2.5 * REQUEST_S
    connection.connect()
    kept = connection.sock
    try:
        while time.monotonic() < ends:
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"here"
            if connection.sock is not kept:
                return False
    except (ConnectionError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def test_a_client_that_goes_on_asking_is_not_hung_up_on_between_two_requests(port: int) -> None:
    assert any(lasts(port) for _ in range(3)), "once would be the machine's fault"
