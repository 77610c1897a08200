"""Credentials of a gRPC port that follow the process's certificate files.

gRPC asks for them at each handshake, on threads of its own. It speaks TLS 1.2 and 1.3, whatever the least version of
the other ports is: its library has no setting for that.
"""

from __future__ import annotations

from typing import Any

import grpc

from merlot.security.tls import Certificates, Pem


def credentials_of(certificates: Certificates) -> Any:
    """Return the credentials of a port. Clients need a certificate if those of the other ports do."""
    initial = certificates.pem()
    given = [initial]

    def changed() -> Any:
        """Return the files' contents if they have changed; None leaves gRPC with what it has."""
        pem = certificates.pem()
        if pem is given[0]:
            return None
        given[0] = pem
        return _configuration(pem)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(initial), changed, require_client_authentication=certificates.files.requires_clients
    )


def _configuration(pem: Pem) -> Any:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.cert)], root_certificates=pem.ca)
