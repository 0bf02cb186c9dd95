"""Parsing in many threads, as a server with many sessions does."""

import ssl
import threading

from frostline.server.translate import parsing


def test_a_thousand_threads_leave_keys_for_others() -> None:
    for _ in range(1100):
        thread = threading.Thread(target=lambda: (parsing.parse_sql("select 1"), parsing.scan("select $1")))
        thread.start()
        thread.join()
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # needs a key of its own
