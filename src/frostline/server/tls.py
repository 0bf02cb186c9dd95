"""The certificate that the lake server shows to clients that ask for encryption."""

import ssl

from frostline.errors import UsageError


def context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """TLS with these PEM files, None when neither is given; raises UsageError for anything else."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing, given = ("lake_tls_certificate", "lake_tls_key") if key else ("lake_tls_key", "lake_tls_certificate")
        raise UsageError(f"{given} is set but {missing} is not", hint="set both, or neither")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.set_alpn_protocols(["postgresql"])
    try:
        # Without a password at hand OpenSSL would ask for one at the terminal.
        tls.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot use the certificate {certificate!r} with the key {key!r}: {error.args[-1]}",
            hint="lake_tls_certificate and lake_tls_key name a pair of PEM files, the key without a password",
        ) from None
    return tls
