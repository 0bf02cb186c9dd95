"""SCRAM-SHA-256, the server's side: messages in, messages out."""

import hashlib
import struct

import scramp

from frostline.errors import FrostlineError
from frostline.server.protocol import backend
from frostline.server.protocol.frontend import ProtocolError

MECHANISM = "SCRAM-SHA-256"


class WrongPassword(FrostlineError):
    """Who the client says it is was not proved."""

    sqlstate = "28P01"


class Credentials:
    """The one user that may log in. Holds what SCRAM needs, not the password."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._mechanism = scramp.ScramMechanism(MECHANISM)
        self._known = self._mechanism.make_auth_info(password)
        # For a user that is not there the exchange runs all the same, with a salt that is the same every time,
        # so that a client cannot find out who is.
        self._decoy_key = hashlib.sha256(self._known[1]).digest()

    def exchange(self, user: str) -> "Exchange":
        """Begin to authenticate one client."""
        if user == self._user:
            return Exchange(user, self._mechanism, self._known)
        salt = hashlib.sha256(self._decoy_key + user.encode()).digest()[:16]
        return Exchange(user, self._mechanism, (salt, b"\0" * 32, b"\0" * 32, self._known[3]))


class Exchange:
    """One authentication: `first` and `last` are the client's two messages."""

    def __init__(
        self, user: str, mechanism: scramp.ScramMechanism, info: tuple[bytes, bytes, bytes, int]
    ) -> None:
        self._user = user
        self._server = mechanism.make_server(lambda _: info)

    def first(self, body: bytes) -> bytes:
        """Answer the client's first message with salt and nonce."""
        mechanism, _, rest = body.partition(b"\0")
        if mechanism != MECHANISM.encode() or len(rest) < 4:
            raise ProtocolError("the client chose another way to authenticate")
        (size,) = struct.unpack_from("!i", rest)
        if size != len(rest) - 4:
            raise ProtocolError("the client's first SCRAM message is malformed")
        try:
            self._server.set_client_first(_decoded(rest[4:]))
            return backend.sasl_continue(self._server.get_server_first())
        except (scramp.ScramException, ValueError) as error:
            raise ProtocolError("the client's first SCRAM message is malformed") from error

    def last(self, body: bytes) -> bytes:
        """Check the client's proof and answer with ours; raises WrongPassword."""
        try:
            self._server.set_client_final(_decoded(body))
            return backend.sasl_final(self._server.get_server_final())
        except (scramp.ScramException, ValueError) as error:
            raise WrongPassword(f"password authentication failed for user {self._user!r}") from error


def _decoded(body: bytes) -> str:
    return body.decode()
