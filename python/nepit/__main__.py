"""`python -m nepit`: the command, a program in the package's folder `bin`.

The script `nepit` of an installed package runs this file by its path, so that the command does not
wait for numpy: nothing of the package is imported here.
"""

import os
import signal
import sys


def main() -> None:
    """Becomes the command: the same process, so signals, pipes and the exit status are its own."""
    here = os.path.dirname(os.path.abspath(__file__))
    program = os.environ.get("NEPIT_COMMAND") or os.path.join(here, "bin", "nepit")
    # Python ignores these two, and a program inherits what is ignored: `nepit ... | head` would
    # complain about a closed pipe where any other command just ends.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execv(program, ["nepit", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"nepit: {program}: {error.strerror} (NEPIT_COMMAND can name the command)")


if __name__ == "__main__":
    main()
