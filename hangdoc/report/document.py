"""The diagnosis as the public JSON document ``hangdoc.diagnosis/1``."""

from __future__ import annotations

import json

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.document import diagnosis_document, schema


def render(diagnosis: Diagnosis) -> str:
    """The document, indented; pure ASCII, so that printing it can do a terminal no harm."""
    return json.dumps(diagnosis_document(diagnosis), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


__all__ = ["render", "schema"]
