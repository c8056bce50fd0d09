"""Why TLS with a store failed, and how to trust a private CA: each library has its own variable for it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.stores.store import Hints

_WHY = re.compile(r"certificate verify failed: (.+?)\.? \(_ssl")
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
_NO_BUNDLE = ("CA certificate bundle", "NO_CERTIFICATE_OR_CRL_FOUND", "PEM lib")


def explained(text: str, hints: Hints, where: str) -> TrbError | None:
    """The error for a library's message; None if that is not about TLS."""
    bundle = next((name for name in hints.ca_variables if os.environ.get(name)), "")
    value = os.environ.get(bundle, "")
    if any(word in text for word in _NO_BUNDLE) or ("[Errno 2]" in text and bundle and _gone(value)):
        what = "names no file" if _gone(value) else "holds no certificate"
        message, remedy = f"{bundle} {what}: {value}", f"name a PEM file of CA certificates in {bundle}"
    elif why := _WHY.search(text):
        message, remedy = f"its certificate is not trusted: {why[1]}", _trust(why[1], hints)
    elif any(word in text for word in _NO_TLS):
        message, remedy = "does not speak TLS, plain HTTP perhaps", hints.plain_http
    else:
        return None
    return TrbError(Code.STORAGE_UNREACHABLE, message, where=where, remedy=remedy)


def _gone(path: str) -> bool:
    return not Path(path).exists()


def _trust(why: str, hints: Hints) -> str:
    if "mismatch" in why:
        return "use a name or an address that the certificate is made for"
    if "expired" in why or "not yet valid" in why:
        return "renew the server's certificate, or set the clock of this machine"
    return f"if the server is yours, name its CA's certificate: {hints.ca_variables[0]}=FILE.pem"
