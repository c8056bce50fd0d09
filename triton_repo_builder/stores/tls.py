"""Why TLS with a store failed, and how to trust a private CA: every library looks somewhere else for it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from triton_repo_builder.errors import Code, TrbError

BUNDLES = {
    "s3": ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"),
    "gs": ("SSL_CERT_FILE",),
    "az": ("SSL_CERT_FILE",),
    "oci": ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}
"""Variables that name a file of CA certificates; the first that is set counts. A test covers the
first of each, but az's."""
PLAIN = {
    "s3": "check the port, or write s3://HOST:PORT/BUCKET/PREFIX, which is plain HTTP",
    "oci": "check the port; trb speaks plain HTTP only to a registry on this machine (localhost or 127.…)",
}
_WHY = re.compile(r"certificate verify failed: (.+?)\.? \(_ssl")
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
_NO_BUNDLE = ("CA certificate bundle", "NO_CERTIFICATE_OR_CRL_FOUND", "PEM lib")


def explained(text: str, scheme: str, where: str) -> TrbError | None:
    """The error for what a library said; None where that is not about TLS."""
    bundle = next((name for name in _bundles(scheme) if os.environ.get(name)), "")
    value = os.environ.get(bundle, "")
    if any(word in text for word in _NO_BUNDLE) or ("[Errno 2]" in text and bundle and _gone(value)):
        what = "names no file" if _gone(value) else "holds no certificate"
        message, remedy = f"{bundle} {what}: {value}", f"name a PEM file of CA certificates in {bundle}"
    elif why := _WHY.search(text):
        message, remedy = f"its certificate is not trusted: {why[1]}", _trust(why[1], scheme)
    elif any(word in text for word in _NO_TLS):
        message, remedy = "speaks no TLS there, plain HTTP perhaps", PLAIN.get(scheme, "check the port")
    else:
        return None
    return TrbError(Code.STORAGE_UNREACHABLE, message, where=where, remedy=remedy)


def _bundles(scheme: str) -> tuple[str, ...]:
    return BUNDLES.get(scheme, ("SSL_CERT_FILE",))


def _gone(path: str) -> bool:
    return not Path(path).exists()


def _trust(why: str, scheme: str) -> str:
    if "mismatch" in why:
        return "use a name or an address that the certificate is made for"
    if "expired" in why or "not yet valid" in why:
        return "renew the server's certificate, or set the clock of this machine"
    return f"if the server is yours, name its CA's certificate: {_bundles(scheme)[0]}=FILE.pem"
