"""The authentication back end of a proxy, between a request and the store, where its secret is sealed."""

from __future__ import annotations

from config.files.secret_box import SecretBox
from config.model.proxies import ProxyRecord, ProxyUpdate
from config.model.proxy_parts import change_backend


def with_backend(record: ProxyRecord, body: ProxyUpdate, seal: SecretBox, makes: bool = True) -> ProxyRecord:
    """`record` with the back end of `body`, if it names one. Without a secret one is made if `makes`.

    Raises `InvalidProxy`, `SecretBoxError`.
    """
    if body.auth is None or "backend" not in body.auth.model_fields_set:
        return record
    given = body.auth.backend
    backend = None if given is None else change_backend(record.auth.backend, given, seal, makes)
    return record.model_copy(update={"auth": record.auth.model_copy(update={"backend": backend})})
