"""The command ``pacbayes``, and ``python -m pacbayes``: the command line, which can be interrupted from the start."""

import os
import signal


def main() -> None:
    # Threads that wait by spinning make a busy machine ten times slower. PyTorch reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # While PyTorch is imported, which takes seconds, there is nothing to put in order. And a KeyboardInterrupt would
    # not do: NumPy goes on from one inside its own import, and fails in another way.
    may_be_interrupted = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if may_be_interrupted:
        signal.signal(signal.SIGINT, _end)
    from pacbayes import cli

    if may_be_interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
