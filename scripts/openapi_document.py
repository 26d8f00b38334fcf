"""Writes the OpenAPI document of the API to a file:      scripts/openapi_document.py FILE"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from api.app import OPERATIONS
from api.openapi.document import build


def main(file: str) -> None:
    """Write the document as JSON."""
    Path(file).write_text(json.dumps(build(OPERATIONS), ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1])
