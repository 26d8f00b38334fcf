"""The configuration as a whole."""

from __future__ import annotations

from api.http.body import IMPORT_PATH, MAX_IMPORT
from api.import_export.document import ConfigDocument
from api.openapi.schemas.transfer import ExportedConfig, Imported
from api.operations.operation import V1, get, post, resource
from api.resources import transfer
from api.security.permissions import ADMIN

TABLE = resource("", read=ADMIN, write=ADMIN)(
    get(
        f"{V1}/config/export",
        "exportConfig",
        transfer.export_config,
        ExportedConfig,
        query=transfer.ExportConfig,
        if_match=True,
        passphrase=True,
    ),
    post(
        IMPORT_PATH,
        "importConfig",
        transfer.import_config,
        Imported,
        body=ConfigDocument,
        largest_body=MAX_IMPORT,
        query=transfer.ImportConfig,
        if_match=True,
        passphrase=True,
        audit=False,
    ),
)
