# SPDX-License-Identifier: Apache-2.0
"""A ClickHouse HTTP client's requests to chxad, and what the tests compress them with."""
import gzip
import http.client
import re
import subprocess
import urllib.parse
import zlib

from rest import split_url


class Reply:
    """Status, headers and body as they came."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def __repr__(self):
        return f"<{self.status} {dict(self.headers)} {self.body[:600].decode(errors='replace')}>"

    @property
    def exception(self):
        """ClickHouse's exception number, as its clients read it: from the text, and from the header (which
        18.16 has not)."""
        found = re.match(rb"Code: (\d+)", self.body)
        assert found and b"Exception: " in self.body, self
        number = found.group(1).decode()
        ours = "X-Chxa-Error" in self.headers
        assert self.headers.get("X-ClickHouse-Exception-Code", None if ours else number) == number, self
        return int(number)

    def ok(self):
        assert self.status == 200 and "X-ClickHouse-Exception-Code" not in self.headers, self
        return self


def ask(url, method="POST", path="/", body=None, headers=None, timeout=120, **parameters):
    """parameters: of the URL."""
    target = path + ("?" + urllib.parse.urlencode(parameters) if parameters else "")
    host, port = split_url(url)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request(method, target, body=body, headers=headers or {})
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def _filter(*command):
    return lambda data: subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def _bare_deflate(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


# name: (headers, URL parameters, function)
PACKINGS = {
    "clear": ({}, {}, bytes),
    "gzip": ({"Content-Encoding": "gzip"}, {}, gzip.compress),
    "gzip members": (
        {"Content-Encoding": "gzip"},
        {},
        lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:20]) + gzip.compress(data[20:]),
    ),
    "deflate": ({"Content-Encoding": "deflate"}, {}, zlib.compress),
    "bare deflate": ({"Content-Encoding": "deflate"}, {}, _bare_deflate),
    "zstd": ({"Content-Encoding": "zstd"}, {}, _filter("zstd", "-qc")),
    "lz4": ({"Content-Encoding": "lz4"}, {}, _filter("lz4", "-qc")),
    "br": ({"Content-Encoding": "br"}, {}, _filter("brotli", "-c")),
}


NATIVE = ("LZ4", "ZSTD", "NONE")


def packed(name, data):
    """(headers, parameters, body) of these bytes in that packing."""
    headers, parameters, function = PACKINGS[name]
    return dict(headers), dict(parameters), function(data)


def native(server, method, data):
    """These bytes in ClickHouse's own blocks, as a real server (26.7) packs them."""
    blocks = b""
    for at in range(0, len(data), 50_000):
        text = f"SELECT unhex('{data[at:at + 50_000].hex()}') FORMAT RawBLOB"
        reply = ask(server.url, body=text, compress=1, network_compression_method=method)
        blocks += reply.ok().body
    return blocks
