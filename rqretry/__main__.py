"""The program `rqretry`, and `python -m rqretry`: what is pressed while it loads is obeyed, too."""

import sys
from importlib import import_module


def main() -> None:
    """Run the program; does not return."""
    try:
        program = import_module("rqretry.cli.main")
    except KeyboardInterrupt:  # nothing has begun
        sys.exit(1)
    program.main()


if __name__ == "__main__":
    main()
