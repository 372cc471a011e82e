"""Queries a carstate service: how do cars drive, and are their throttle systems healthy?

It needs Python 3.9 or newer and only the standard library. The token is sent in the query, as
the interface requires. No error, repr or log of this module contains it.

    client = carstate.Client("https://cars.example", os.environ["CARSTATE_TOKEN"])
    answer = client.car_driving_state("SandboxJam")
    if answer.state == carstate.TRAFFIC_JAM: ...
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Optional
from urllib.parse import quote, urlencode, urlsplit

DRIVING_PATH = "/api/ic/if_dt_tflow_car_driving_state"
THROTTLE_PATH = "/api/ic/if_dt_amo_throttle_system"

NORMAL_DRIVING, SLOW_DRIVING, TRAFFIC_JAM = "1", "2", "3"
THROTTLE_ANOMALY, THROTTLE_NORMAL = "0", "1"
REASON_UNKNOWN, REASON_STALE, REASON_NOT_DRIVING = "unknown", "stale", "not_driving"

_MOST_TRIES = 4
_MOST_BODY = 64 << 10  # bytes; no answer is longer
_FIRST_DELAY = 0.1  # seconds before the first retry without Retry-After; it doubles
_OUTAGES = (502, 503, 504)
_MOST_IDLE = 50  # seconds that a connection is kept without a call; the service closes it after 60


@dataclass(frozen=True)
class Answer:
    """An answer about a car. If there is none, state is "" and reason says why."""

    vid: str
    state: str  # one of the constants above, or another text from a later version
    reason: str
    as_of: Optional[datetime]  # the time of the reading on which the answer is based
    age: Optional[float]  # how old that reading was when the service answered, in seconds
    request_id: str

    @property
    def answered(self) -> bool:
        return self.state != ""


class CarstateError(Exception):
    """A call failed. The message says why, in one line without the token."""

    def __init__(self, message: str, code: int = 0, retry_after: Optional[int] = None, request_id: str = "", broken: bool = False):
        super().__init__(message)
        self.code = code  # the HTTP status; 0 if there was no answer
        self.retry_after = retry_after  # seconds that the service asks the client to wait
        self.request_id = request_id  # give it to the operator when you report a problem
        self._broken = broken  # the connection failed, or a gateway cannot reach the service: retry soon

    @property
    def kind(self) -> str:
        """The first word of the service's message, such as rate_limited; "" if it has none."""
        word, colon, _ = str(self).partition(": ")
        return word if colon and word.replace("_", "").isalpha() and word.islower() else ""


class Client:
    """Queries one service with one token. Several threads may use a client at once.

    It keeps one connection for the next call. Calls at the same time open more, for one call each.
    """

    def __init__(self, base_url: str, token: str, *, timeout: float = 10, patience: float = 30, context: Optional[ssl.SSLContext] = None):
        """Sets the timeout of one network operation, and for how long a call is retried (patience).

        Both are in seconds.
        """
        self._kept: deque[tuple[http.client.HTTPConnection, float, int]] = deque()  # since when, of which process
        u = urlsplit(base_url)
        if u.scheme not in ("http", "https") or not u.hostname or u.username or u.password or u.query or u.fragment:
            raise ValueError("the base URL must look like https://cars.example or http://127.0.0.1:8080, without user, query and fragment")
        if not isinstance(token, str) or not token:
            raise ValueError("the token is missing: it is the access token that the operator gave to you, cst_… or cstest_…")
        self._tls = u.scheme == "https"
        self._host, self._port, self._path = u.hostname, u.port, u.path.rstrip("/")
        self._token, self._timeout, self._patience, self._context = token, timeout, patience, context

    def __repr__(self) -> str:
        return f"<carstate client of {self._host}, token hidden>"

    def car_driving_state(self, vid: str) -> Answer:
        """Asks whether the vehicle drives normally, slowly, or is in a traffic jam."""
        return self._ask(DRIVING_PATH, "vehicle_runing_state", vid)  # the interface spells it like this

    def throttle_system(self, vid: str) -> Answer:
        """Asks whether the throttle system of the vehicle is normal or has an anomaly."""
        return self._ask(THROTTLE_PATH, "throttle_system", vid)

    def _ask(self, path: str, field: str, vid: str) -> Answer:
        begin = time.monotonic()
        for attempt in range(1, _MOST_TRIES + 1):
            try:
                return self._once(path, field, vid)
            except CarstateError as e:
                wait = spread = 0.0
                if e.retry_after and e.code in (429, *_OUTAGES):
                    wait, spread = e.retry_after, e.retry_after / 4
                elif e._broken:
                    wait = spread = _FIRST_DELAY * 2 ** (attempt - 1) / 2
                if wait == 0 or attempt == _MOST_TRIES or time.monotonic() - begin + wait > self._patience:
                    raise
                time.sleep(wait + random.uniform(0, spread))
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Closes the kept connection. The next call opens another one."""
        link = self._take()
        if link:
            link.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _take(self) -> Optional[http.client.HTTPConnection]:
        try:
            link, since, process = self._kept.pop()
        except IndexError:
            return None
        # After a fork, the connection belongs to the parent process, which would get our answers.
        if process == os.getpid() and time.monotonic() - since < _MOST_IDLE:
            return link
        link.close()
        return None

    def _once(self, path: str, field: str, vid: str) -> Answer:
        kept = self._take()
        # http.client uses no proxy and follows no redirect, which would send the token elsewhere.
        if kept:
            link = kept
        elif self._tls:
            link = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)
        else:
            link = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        keep = False
        try:
            try:
                response = self._send(link, path, vid)
            except (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                if not kept:
                    raise
                link.close()  # the service closed it while it was kept; the next request opens it again
                response = self._send(link, path, vid)
            body = response.read(_MOST_BODY + 1)
            keep = response.isclosed()  # it was read to its end
        except ssl.SSLCertVerificationError as e:
            raise CarstateError(self._redact(f"{self._host} has a certificate that is not trusted: {e.verify_message}")) from None
        except (OSError, http.client.HTTPException) as e:
            raise CarstateError(self._redact(f"cannot reach {self._host}:{link.port}: {type(e).__name__}: {e}"), broken=True) from None
        finally:
            if keep and link.sock and not self._kept:
                self._kept.append((link, time.monotonic(), os.getpid()))
            else:
                link.close()
        return self._parse(response, body, field, vid)

    def _send(self, link: http.client.HTTPConnection, path: str, vid: str) -> http.client.HTTPResponse:
        query = urlencode({"access_token": self._token, "vid": vid})
        link.request("GET", f"{self._path}{path}?{query}", headers={"Accept": "application/json", "User-Agent": "carstate-python"})
        return link.getresponse()

    def _parse(self, response: http.client.HTTPResponse, body: bytes, field: str, vid: str) -> Answer:
        code, header = response.status, response.headers
        request_id = self._redact(header.get("X-Request-Id", ""))

        def bad(why: str) -> CarstateError:
            return CarstateError(f"the server does not speak this interface: {why}", code, None, request_id)

        if len(body) > _MOST_BODY:
            raise bad("its answer has more than 64 KiB")
        try:
            envelope: Any = json.loads(body)
        except ValueError:
            envelope = None
        is_envelope = isinstance(envelope, dict) and "code" in envelope
        if code != 200 or is_envelope and str(envelope["code"]) != "200":
            message = self._redact(str(envelope.get("msg", ""))) if is_envelope else ""
            if not message and 300 <= code < 400:
                message = "the server answers with a redirect, which is not followed because it would send the token elsewhere"
            if is_envelope and code == 200 and str(envelope["code"]).isdigit():
                code = int(envelope["code"])  # the HTTP status does not show the failure
            raise CarstateError(message or f"the server answers HTTP {code}, but does not speak this interface: is this its base URL?", code,
                                _seconds(header.get("Retry-After")), request_id, broken=code in _OUTAGES)
        record = envelope.get("data") if is_envelope else None
        if not isinstance(record, dict):
            raise bad("the envelope has no record")
        if str(record.get("vid", vid)) != vid:
            raise bad("the record is about another vehicle")
        known = str(record.get("status")) == "1"  # a number; other services send a string
        as_of = _date(header.get("Last-Modified"))
        age = None if as_of is None else max(0.0, ((_date(header.get("Date")) or datetime.now(timezone.utc)) - as_of).total_seconds())
        return Answer(vid, self._redact(str(record.get(field, ""))) if known else "",
                      "" if known else self._redact(header.get("Carstate-Reason", "")), as_of, age, request_id)

    def _redact(self, text: str) -> str:
        for secret in (self._token, quote(self._token, safe="")):
            if secret:
                text = text.replace(secret, "[token]")
        return "".join(c if c.isprintable() else " " for c in text)[:500]


def _seconds(text: Optional[str]) -> Optional[int]:
    return min(int(text), 365 * 86400) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def _date(text: Optional[str]) -> Optional[datetime]:
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
