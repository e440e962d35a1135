"""``python -m hangdoc``, and the command ``hangdoc``."""

# Nothing else is imported before `main` has run its first line: the working directory could hold it as well.
import sys

from hangdoc.interpreter import forget_working_directory


def main() -> int:
    """Run the command line."""
    forget_working_directory()
    if sys.argv[1:2] == ["capture"]:
        # Runs where only the standard library and py-spy are.
        from hangdoc import capture_command

        return capture_command.main(sys.argv[2:])
    from hangdoc import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
