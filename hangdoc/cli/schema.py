"""``hangdoc schema``: the JSON schema of the document that ``--json`` prints."""

from __future__ import annotations

import sys


def schema() -> None:
    """Print the JSON schema of a diagnosis document (`--json`, `--report FILE.json`, the file beside each snapshot).

    Later versions may add fields; none that is there changes its meaning.
    """
    import json

    from hangdoc.report.document import schema as schema_of_document

    sys.stdout.write(json.dumps(schema_of_document(), indent=2) + "\n")
