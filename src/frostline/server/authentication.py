"""SCRAM-SHA-256, the server's side: messages in, messages out.

The keys come from `scramp`; the exchange is our own, because scramp refuses the empty user name that libpq sends
inside SCRAM (Postgres takes the user from the startup message).
"""

import base64
import hashlib
import hmac
import re
import secrets
import struct
from typing import Any

import scramp

from frostline.errors import UsageError
from frostline.server.protocol import backend
from frostline.server.protocol.frontend import ProtocolError

MECHANISM = "SCRAM-SHA-256"

_FIRST = re.compile(r"(?P<header>[ny],(?:a=[^,]*)?,)(?P<bare>n=[^,]*,r=(?P<nonce>[!-+\--~]{1,512})(?:,.*)?)")
_FINAL = re.compile(r"(?P<bare>c=(?P<binding>[^,]*),r=(?P<nonce>[^,]*)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)")

Keys = tuple[bytes, bytes, bytes, int]
"""Salt, stored key, server key, iterations."""


class WrongPassword(UsageError):
    """Who the client says it is was not proved."""

    sqlstate = "28P01"


class Credentials:
    """The one user that may log in. Holds what SCRAM needs, not the password."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        mechanism: Any = scramp.ScramMechanism(MECHANISM)
        self._keys: Keys = mechanism.make_auth_info(password)
        self._decoy = secrets.token_bytes(32)

    def exchange(self, user: str) -> "Exchange":
        """Begin to authenticate one client.

        For a user that is not there the exchange runs all the same, with a salt of the same length that is the same
        every time, so that nobody can find out who is.
        """
        if user == self._user:
            return Exchange(user, self._keys)
        salt = hmac.digest(self._decoy, user.encode(), "sha256")[: len(self._keys[0])]
        return Exchange(user, (salt, secrets.token_bytes(32), secrets.token_bytes(32), self._keys[3]))


class Exchange:
    """One authentication: `first` and `last` answer the client's two messages."""

    def __init__(self, user: str, keys: Keys) -> None:
        self._user = user
        self._salt, self._stored_key, self._server_key, self._iterations = keys
        self._header = self._nonce = self._said = ""

    def first(self, body: bytes) -> bytes:
        """Answer with salt and nonce."""
        message = _FIRST.fullmatch(_initial_response(body))
        if message is None:
            raise ProtocolError("the client's first SCRAM message is malformed")
        self._header, self._nonce = message["header"], message["nonce"] + secrets.token_urlsafe(18)
        salt = base64.b64encode(self._salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._iterations}"
        self._said = f"{message['bare']},{answer}"
        return backend.sasl_continue(answer)

    def last(self, body: bytes) -> bytes:
        """Check the client's proof and answer with ours; raises WrongPassword."""
        message = _FINAL.fullmatch(_decoded(body))
        if message is None:
            raise ProtocolError("the client's last SCRAM message is malformed")
        said = f"{self._said},{message['bare']}".encode()
        binding = base64.b64encode(self._header.encode()).decode()
        same = message["nonce"] == self._nonce and message["binding"] == binding
        if not (same and self._proves(message["proof"], said)):
            raise WrongPassword(f'password authentication failed for user "{self._user}"')
        signature = base64.b64encode(hmac.digest(self._server_key, said, "sha256")).decode()
        return backend.sasl_final(f"v={signature}")

    def _proves(self, proof: str, said: bytes) -> bool:
        """Whether the proof, taken off the signature, is a key whose hash we have stored."""
        try:
            given = base64.b64decode(proof, validate=True)
        except ValueError:
            return False
        signature = hmac.digest(self._stored_key, said, "sha256")
        if len(given) != len(signature):
            return False
        key = bytes(left ^ right for left, right in zip(given, signature, strict=True))
        return hmac.compare_digest(hashlib.sha256(key).digest(), self._stored_key)


def _initial_response(body: bytes) -> str:
    mechanism, _, rest = body.partition(b"\0")
    if mechanism != MECHANISM.encode() or len(rest) < 4:
        raise ProtocolError("the client chose another way to authenticate")
    (size,) = struct.unpack_from("!i", rest)
    if size != len(rest) - 4:
        raise ProtocolError("the client's first SCRAM message is malformed")
    return _decoded(rest[4:])


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a SCRAM message is not UTF-8") from None
