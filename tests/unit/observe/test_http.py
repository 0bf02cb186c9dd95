"""The port for metrics: what it answers, and what it does with clients that mean no good."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.fixtures.scraped import scrape

from frostline.errors import UsageError
from frostline.observe.metrics.exposition import Family, Sample, gauge
from frostline.observe.metrics.http import CLIENT_S, CLIENTS, Endpoint

Serve = Callable[..., Endpoint]


def one_gauge() -> list[Family]:
    return [gauge("temperature", "Of the lake.", Sample(4))]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts endpoints that are closed after the test."""
    running: list[Endpoint] = []

    def start(collect: Callable[[], list[Family]] = one_gauge, client_s: float = CLIENT_S) -> Endpoint:
        running.append(Endpoint("127.0.0.1", 0, collect, client_s=client_s))
        return running[-1]

    yield start
    for endpoint in running:
        endpoint.stop()


def ask(endpoint: Endpoint, method: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def raw(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.port), timeout=60)


def said(client: socket.socket) -> bytes:
    """Everything up to the end."""
    received = b""
    try:
        while chunk := client.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def test_a_scrape_gives_what_was_collected(serve: Serve) -> None:
    endpoint = serve()
    assert scrape(endpoint.port).value("temperature") == 4
    assert ask(endpoint, "GET", "/metrics?x=1")[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/../metrics"])
def test_there_is_nothing_else(serve: Serve, path: str) -> None:
    assert ask(serve(), "GET", path) == (404, "there is only /metrics\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "BREW"])
def test_only_get_is_answered(serve: Serve, method: str) -> None:
    assert ask(serve(), method, "/metrics") == (405, "only GET is answered\n")


def test_head_is_refused_without_a_body(serve: Serve) -> None:
    assert ask(serve(), "HEAD", "/metrics") == (405, "")


def test_an_error_while_collecting_is_told_in_one_line_and_the_next_scrape_works(serve: Serve) -> None:
    broken = [True]

    def collect() -> list[Family]:
        if broken[0]:
            raise RuntimeError("a secret of the engine")
        return one_gauge()

    endpoint = serve(collect)
    assert ask(endpoint, "GET", "/metrics") == (500, "the metrics could not be collected; the log says why\n")
    broken[0] = False
    assert ask(endpoint, "GET", "/metrics")[0] == 200


@pytest.mark.parametrize("sent", [
    b"GET /metrics" + b"x" * 20_000,
    b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000,
    b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 3_000,
])  # fmt: skip
def test_a_request_that_does_not_end_is_refused(serve: Serve, sent: bytes) -> None:
    with raw(serve(client_s=60.0)) as client:
        client.sendall(sent)
        answer = said(client)
    assert b"xxx" not in answer
    assert answer == b"" or answer.startswith((b"HTTP/1.0 431", b"HTTP/1.1 431"))


def test_a_long_request_is_refused_although_it_ends(serve: Serve) -> None:
    with raw(serve()) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 3_000 + b"\r\n")
        answer = said(client)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    "sent", [b"\r\n", b"\x00\xff\n\n", b"nonsense\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n"]
)
def test_nonsense_gets_a_short_answer_or_none(serve: Serve, sent: bytes) -> None:
    endpoint = serve()
    with raw(endpoint) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert len(said(client)) < 300
    assert ask(endpoint, "GET", "/metrics")[0] == 200


def test_clients_that_say_nothing_do_not_keep_others_out(serve: Serve) -> None:
    endpoint = serve()
    with ExitStack() as stack:
        for _ in range(CLIENTS // 2):
            stack.enter_context(raw(endpoint)).sendall(b"GET /met")
        assert ask(endpoint, "GET", "/metrics")[0] == 200


def drip(client: socket.socket) -> None:
    """Each byte in time, the request never."""
    for _ in range(200):
        client.sendall(b"G")
        time.sleep(0.05)


def test_a_client_that_speaks_ever_so_slowly_is_cut_off(serve: Serve) -> None:
    endpoint = serve(client_s=0.5)
    with raw(endpoint) as client, pytest.raises((ConnectionResetError, BrokenPipeError)):
        drip(client)
    assert ask(endpoint, "GET", "/metrics")[0] == 200


def test_a_crowd_is_hung_up_on_until_there_is_room_again(serve: Serve) -> None:
    endpoint = serve(client_s=60.0)
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(raw(endpoint)).sendall(b"GET /met")
        for _ in range(3):
            with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)):
                ask(endpoint, "GET", "/metrics")
    assert answered_at_last(endpoint) == 200


def answered_at_last(endpoint: Endpoint) -> int:
    """The threads of clients that hung up take a moment to notice."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return ask(endpoint, "GET", "/metrics")[0]
        except OSError:
            if time.monotonic() > deadline:
                raise


def test_a_port_that_is_taken_is_said_in_one_line(serve: Serve) -> None:
    endpoint = serve()
    with pytest.raises(UsageError, match=f"127.0.0.1:{endpoint.port}") as refusal:
        Endpoint("127.0.0.1", endpoint.port, one_gauge)
    assert refusal.value.hint


def test_stop_closes_the_port(serve: Serve) -> None:
    endpoint = Endpoint("127.0.0.1", 0, one_gauge)
    assert scrape(endpoint.port).kinds
    endpoint.stop()
    with pytest.raises(ConnectionRefusedError):
        raw(endpoint)


def test_the_address_may_be_one_of_version_six() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        endpoint = Endpoint("::1", 0, one_gauge)
    except UsageError:
        pytest.skip("this machine has no IPv6 loopback")
    endpoint.stop()


def test_on_all_addresses_of_version_six_it_answers_those_of_version_four_too() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    endpoint = Endpoint("::", 0, one_gauge)
    try:
        assert asked_as(endpoint, "127.0.0.1") == asked_as(endpoint, "localhost") == 200
        assert asked_as(endpoint, "rebound.example") == 421
    finally:
        endpoint.stop()


def test_a_collection_that_hangs_keeps_nobody_from_stopping() -> None:
    begun, released = threading.Event(), threading.Event()

    def collect() -> list[Family]:
        begun.set()
        released.wait()
        return one_gauge()

    endpoint = Endpoint("127.0.0.1", 0, collect)
    with raw(endpoint) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert begun.wait(60)
        endpoint.stop()
        with pytest.raises(ConnectionRefusedError):
            raw(endpoint)
    released.set()


def test_it_tells_nobody_what_it_runs_on(serve: Serve) -> None:
    with raw(serve()) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"\r\nServer: frostline\r\n" in said(client)


def asked_as(endpoint: Endpoint, *hosts: str, method: str = "GET") -> int:
    """The status that a request with these Host headers gets."""
    with raw(endpoint) as client:
        lines = [f"{method} /metrics HTTP/1.1", *(f"Host: {host}" for host in hosts), "Connection: close"]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(said(client).split()[1])


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9187", "localhost", "LOCALHOST:1", "localhost.", "[::1]:9187"]
)
def test_it_answers_to_the_names_of_the_loopback(serve: Serve, host: str) -> None:
    assert asked_as(serve(), host) == 200


@pytest.mark.parametrize("host", [
    "rebound.example", "rebound.example:9187", "localhost.rebound.example", "127.0.0.1.rebound.example", "10.0.0.1",
    "", "[", "127.0.0.1@rebound.example", "rebound.example, localhost",
])  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_it_answers_to_no_name_of_somebody_else(serve: Serve, host: str, method: str) -> None:
    assert asked_as(serve(), host, method=method) == 421


def test_a_request_names_one_host(serve: Serve) -> None:
    endpoint = serve()
    assert asked_as(endpoint) == 421
    assert asked_as(endpoint, "localhost", "rebound.example") == 421


def test_names_of_the_settings_are_known_wherever_it_listens() -> None:
    endpoint = Endpoint("0.0.0.0", 0, one_gauge, names=["Db1.internal"])
    try:
        assert [
            asked_as(endpoint, host) for host in ("db1.internal:9187", "DB1.INTERNAL", "localhost", "127.0.0.1")
        ] == [200] * 4
        assert asked_as(endpoint, "db2.internal") == 421
    finally:
        endpoint.stop()
