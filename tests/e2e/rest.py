# SPDX-License-Identifier: Apache-2.0
"""A tiny client of chxad's REST API. It follows no redirect and retries nothing unless told to.

Every answer is held against proto/openapi.yaml on the way, every error against proto/errors.def.
"""
import http.client
import json
import re
import socket
import urllib.parse

import openapi_check
from servers import ROOT


def _read_errors():
    text = (ROOT / "proto" / "errors.def").read_text()
    pattern = r'^CHXA_ERROR\(\d+, (\w+), (\d+), \w+, (true|false), (KNOWN|UNKNOWN), "'
    return {
        name: {"status": int(status), "retryable": retryable == "true", "outcome": outcome.lower()}
        for name, status, retryable, outcome in re.findall(pattern, text, re.M)
    }


ERRORS = _read_errors()


class Answer:
    """Status, headers and body of one response."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self):
        return f"<{self.status} {self.body[:600].decode(errors='replace')}>"

    @property
    def json(self):
        return json.loads(self.body)

    def __getitem__(self, key):
        return self.json[key]

    @property
    def error(self):
        return self.json["error"]

    @property
    def code(self):
        """The error's code, or None for a success or a redirect."""
        return self.error["code"] if self.status >= 400 else None

    def ok(self, status=200):
        """Fails the test with the whole answer unless the status is this one."""
        expected = status if isinstance(status, tuple) else (status,)
        assert self.status in expected, f"expected {status}, got {self!r}"
        return self

    def fails(self, code):
        """Fails the test unless this is exactly that error."""
        assert self.status >= 400, f"expected {code}, got {self!r}"
        assert self.code == code, f"expected {code}, got {self!r}"
        return self

    def check_error_form(self):
        error = self.json["error"]
        assert set(error) >= {"code", "message", "retryable", "outcome"}, self
        listed = ERRORS[error["code"]]
        assert self.status == listed["status"], self
        assert error["retryable"] is listed["retryable"], self
        assert error["outcome"] == listed["outcome"], self
        assert error["message"].strip(), self
        if listed["status"] == 503:
            assert self.headers.get("Retry-After"), f"503 without Retry-After: {self!r}"


def split_url(url):
    """'http://127.0.0.1:80/x' → ('127.0.0.1', 80)."""
    parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
    return parts.hostname, parts.port


class Client:
    """One node of chxa. Each request has a connection of its own."""

    def __init__(self, url, timeout=120, follow=False):
        self.host, self.port = split_url(url)
        self.timeout = timeout
        self.follow = follow

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)

    def request(self, method, target, body=None, headers=None):
        """target: path and query as they go on the wire. body: bytes, a file, an iterator (chunked)."""
        host, port = self.host, self.port
        for _ in range(4):
            connection = http.client.HTTPConnection(host, port, timeout=self.timeout)
            try:
                connection.request(method, target, body=body, headers=headers or {})
                response = connection.getresponse()
                answer = Answer(response.status, response.headers, response.read())
            finally:
                connection.close()
            if method != "HEAD":
                if answer.status >= 400:
                    answer.check_error_form()
                kind = answer.headers.get("Content-Type")
                wrong = openapi_check.check(method, target.split("?")[0], answer.status, kind, answer.body)
                assert not wrong, f"proto/openapi.yaml does not describe {answer!r}: {wrong}"
            if answer.status != 307 or not self.follow:
                return answer
            location = answer.headers["Location"]
            host, port = split_url(location)
            parts = urllib.parse.urlsplit(location)
            target = parts.path + (f"?{parts.query}" if parts.query else "")
        raise AssertionError(f"redirected in a circle: {answer!r}")

    @staticmethod
    def path(xid, verb="", **parameters):
        target = "/v1/transactions/" + urllib.parse.quote(xid, safe=":")
        if verb:
            target += f"/{verb}"
        given = {key: value for key, value in parameters.items() if value is not None}
        return target + ("?" + urllib.parse.urlencode(given) if given else "")

    def begin(self, xid, **fields):
        body = json.dumps(fields).encode() if fields else None
        return self.request("PUT", self.path(xid), body)

    def write(self, xid, statement, body=b"", write_id=None, headers=None, **parameters):
        target = self.path(xid, "writes", query=statement, write_id=write_id, **parameters)
        return self.request("POST", target, body, headers)

    def prepare(self, xid, wait_ms=None, **fields):
        body = json.dumps(fields).encode() if fields else None
        return self.request("POST", self.path(xid, "prepare", wait_ms=wait_ms), body)

    def commit(self, xid, wait_ms=None, **fields):
        body = json.dumps(fields).encode() if fields else None
        return self.request("POST", self.path(xid, "commit", wait_ms=wait_ms), body)

    def rollback(self, xid, wait_ms=None):
        return self.request("POST", self.path(xid, "rollback", wait_ms=wait_ms))

    def get(self, xid):
        return self.request("GET", self.path(xid))

    def forget(self, xid):
        return self.request("DELETE", self.path(xid))

    def sink(self, name):
        return self.request("GET", "/v1/sinks/" + urllib.parse.quote(name, safe=":"))

    def recover(self, name, epoch, commit=None, wait_ms=None, **fields):
        target = f"/v1/sinks/{urllib.parse.quote(name, safe=':')}/recover"
        if wait_ms is not None:
            target += f"?wait_ms={wait_ms}"
        body = {"epoch": epoch, **({} if commit is None else {"commit": commit}), **fields}
        return self.request("POST", target, json.dumps(body).encode())

    def list(self, **filters):
        query = urllib.parse.urlencode(filters)
        return self.request("GET", "/v1/transactions" + (f"?{query}" if query else ""))

    def raw(self):
        """A bare socket to the node, for requests that no proper client sends."""
        return socket.create_connection((self.host, self.port), timeout=self.timeout)


def read_response(connection):
    """Reads one response from a bare socket; None when the peer closed without one."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
    except (ConnectionError, http.client.BadStatusLine):
        return None
    return Answer(response.status, response.headers, response.read())
