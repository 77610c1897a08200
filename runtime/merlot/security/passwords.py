"""Verify passwords against bcrypt hashes, so that neither a guess nor a flood of guesses costs others anything.

Hashing runs in two threads. Whoever fails often waits, by address; whoever is right is remembered by the door, which
does not come here again for a while. A name that does not exist takes as long as a wrong password. Used on one event
loop.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import bcrypt

from merlot.clock import Clock
from merlot.errors import InvalidInputError, NotAuthenticatedError, UnavailableError
from merlot.security.access import Identity
from merlot.security.credentials import Password
from merlot.security.rules import PasswordUser

COST: Final = 12
MIN_COST: Final = 4
"""Lowest cost that bcrypt knows."""
MAX_COST: Final = 15
"""Highest cost of a hash: 2 s of a core."""
MAX_PASSWORD_BYTES: Final = 72
"""bcrypt reads no more."""
NUM_THREADS: Final = 2
MAX_WAITING: Final = 64
MAX_WAITING_PER_CLIENT: Final = 16
FAILURES: Final = 10
"""Failed attempts that an address may make at once; one more is allowed every `FAILURE_S`."""
FAILURE_S: Final = 3.0
MAX_CLIENTS: Final = 10_000
_NO_HASH: Final = "is no hash of bcrypt: make one by `merlot access hash-password`"
_HASH: Final = re.compile(rb"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")


def hash_password(password: str, cost: int = COST) -> str:
    """Return a bcrypt hash. Raise InvalidInputError if bcrypt would not read the whole password."""
    data = password.encode()
    if not data or len(data) > MAX_PASSWORD_BYTES or b"\0" in data:
        raise InvalidInputError(f"a password has 1 to {MAX_PASSWORD_BYTES} bytes without NUL bytes={len(data)}")
    return bcrypt.hashpw(data, bcrypt.gensalt(cost)).decode()


def matches(password: str, password_hash: bytes) -> bool:
    """Return True if the password is that of the hash. Takes about 0.2 s at the usual cost."""
    data = password.encode()
    if len(data) > MAX_PASSWORD_BYTES or b"\0" in data:
        data = b"\1"  # refused below, after the same time
        bcrypt.checkpw(data, password_hash)
        return False
    return bcrypt.checkpw(data, password_hash)


class PasswordVerifier:
    """Verifies HTTP Basic credentials."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="passwords")
        self._waiting: dict[str, int] = {}
        self._failures = Failures()
        self._absent: tuple[Mapping[str, PasswordUser], bytes] | None = None

    async def identify(self, credential: Password, users: Mapping[str, PasswordUser], client: str) -> Identity:
        """Return the user. Raise NotAuthenticatedError if name or password is wrong, UnavailableError if too many
        attempts wait, or the client has failed too often."""
        now = self._clock.monotonic()
        self._failures.check(client, now)
        user = users.get(credential.user)
        password_hash = self._absent_hash(users) if user is None else user.password_hash
        self._enter(client)
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._pool, matches, credential.password, password_hash)
        finally:
            self._exit(client)
        if user is None or not is_right:
            self._failures.count(client, self._clock.monotonic())
            raise NotAuthenticatedError("name or password is wrong")
        return user.identity

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _absent_hash(self, users: Mapping[str, PasswordUser]) -> bytes:
        """Return a hash that no password has, of the cost of the users' hashes. It is made once for all guesses."""
        if self._absent is None or self._absent[0] is not users:
            self._absent = users, _absent(users)
        return self._absent[1]

    def _enter(self, client: str) -> None:
        if sum(self._waiting.values()) >= MAX_WAITING or self._waiting.get(client, 0) >= MAX_WAITING_PER_CLIENT:
            raise UnavailableError("too many passwords wait to be verified: try again in a second")
        self._waiting[client] = self._waiting.get(client, 0) + 1

    def _exit(self, client: str) -> None:
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]


def cost_of(password_hash: bytes) -> int:
    """Return the cost of a hash. Raise InvalidInputError if bcrypt did not make it."""
    match = _HASH.fullmatch(password_hash)
    if match is None:
        raise InvalidInputError(_NO_HASH)
    return int(match[1])


def check_hash(password_hash: bytes) -> None:
    """Raise InvalidInputError if passwords cannot be verified against a hash, or would take seconds."""
    cost = cost_of(password_hash)
    if cost > MAX_COST:
        raise InvalidInputError(f"has a cost of more than {MAX_COST}: it would take seconds")
    cheap = password_hash[:4] + b"%02d" % MIN_COST + password_hash[6:]
    try:
        bcrypt.checkpw(b"", cheap)  # a salt of the right form may have bits that no salt has
    except ValueError:
        raise InvalidInputError(_NO_HASH) from None
    if cost < MIN_COST:
        raise InvalidInputError(_NO_HASH)


def _absent(users: Mapping[str, PasswordUser]) -> bytes:
    """Return a hash that no password has, of the cost of the users' hashes."""
    cost = max((cost_of(user.password_hash) for user in users.values()), default=COST)
    return b"$2b$%02d$" % cost + b"." * 53


class Failures:
    """Failed attempts by client, which are forgotten at a fixed rate. Used on one event loop."""

    def __init__(self) -> None:
        self._debts: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Number of failures that are not forgotten yet, and when it was right, by client."""

    def check(self, client: str, now: float) -> None:
        """Raise UnavailableError if the client has to wait."""
        if self._debt(client, now) >= FAILURES:
            raise UnavailableError(f"too many failed attempts from this address: wait {FAILURE_S:g} s for each more")

    def count(self, client: str, now: float) -> None:
        """Count a failed attempt."""
        self._debts[client] = self._debt(client, now) + 1, now
        self._debts.move_to_end(client)
        if len(self._debts) > MAX_CLIENTS:
            self._debts.popitem(last=False)

    def _debt(self, client: str, now: float) -> float:
        debt, at = self._debts.get(client, (0.0, now))
        return max(0.0, debt - (now - at) / FAILURE_S)
