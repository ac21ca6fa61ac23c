"""`python -m rqretry` is the `rqretry` command."""

from rqretry.edge.cli.main import main

if __name__ == "__main__":
    main()
