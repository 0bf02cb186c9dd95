"""Uses the processor, and nothing else, until it is ended: `python -m benchmarks.rig.burner 0.7` uses seven tenths of one core.

Of every tenth of a second it burns the first part, counted in its own processor time, and sleeps in the rest.
"""

import sys
import time

PERIOD_S = 0.1


def main(share: float) -> None:
    """Burn for good."""
    end = time.monotonic()
    while True:
        burnt = time.process_time() + share * PERIOD_S
        while time.process_time() < burnt:
            pass
        end += PERIOD_S
        time.sleep(max(0.0, end - time.monotonic()))


if __name__ == "__main__":
    main(float(sys.argv[1]))
