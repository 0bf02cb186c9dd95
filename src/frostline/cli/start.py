"""Where the installed program begins: what Ctrl-C interrupts while everything else is loaded needs no words."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Load the program, and run it. Until it is there, Ctrl-C ends the process as the system does."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from frostline.cli.main import main as run  # noqa: PLC0415

    signal.signal(signal.SIGINT, handler)
    run()
