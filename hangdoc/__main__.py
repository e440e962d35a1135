"""``python -m hangdoc``, and the command ``hangdoc``."""

# Nothing else is imported before `main` has run its first line: the working directory could hold it as well.
import sys

from hangdoc.interpreter import forget_working_directory


def main() -> int:
    """Run the command line."""
    forget_working_directory()
    from hangdoc import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
