"""Answers ClickHouse's HTTP protocol from an engine in this process, for tests of the fleet: chdb is today's ClickHouse, of which
no server can be installed everywhere. It has no users, replicas or other shards.

usage: server.py DIRECTORY      prints its port
"""
import http.server
import os
import re
import sys
import threading
import urllib.parse

from chdb import session

INFO = b"\x01\x00\x02\xff\xff\xff\xff\x00"  # before each block, where the protocol has a version
WIDTH = {"UInt8": 1, "UInt32": 4, "Int64": 8, "UInt64": 8, "Float64": 8}


def blocks(data):
    """Blocks of the engine's format with what the protocol's has besides."""
    at, out = 0, b""

    def take(n):
        nonlocal at
        at += n
        return data[at - n : at]

    def number():
        v, bits = 0, 0
        while True:
            b = take(1)[0]
            v |= (b & 127) << bits
            bits += 7
            if b < 128:
                return v

    def same(f):
        nonlocal out
        begin = at
        v = f()
        out += data[begin:at]
        return v

    while at < len(data):
        out += INFO
        columns, rows = same(number), same(number)
        for _ in range(columns):
            same(lambda: take(number()))
            kind = same(lambda: take(number())).decode()
            out += b"\x00"  # no other serialization
            if kind == "String":
                for _ in range(rows):
                    same(lambda: take(number()))
            else:
                same(lambda: take(rows * WIDTH[kind]))
    return out


engine = session.Session(sys.argv[1] + "/data")
one = threading.Lock()  # a session answers one query at a time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, b"Ok.\n")

    def do_POST(self):
        q = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        query = q.get("query", [""])[0]
        body = self.body()
        form = q.get("default_format", ["Native"])[0]
        with one:
            try:
                m = re.match(r"(?is)\s*(INSERT\s+INTO\s.*?)\s+FORMAT\s+Native\s*$", query)
                if m:  # the block follows in the body
                    file = sys.argv[1] + "/block.native"
                    with open(file, "wb") as f:
                        f.write(body)
                    query = f"{m[1]} SELECT * FROM file('{file}', 'Native')"
                else:
                    query += body.decode()
                self.answer(200, blocks(engine.query(query, form).bytes()))
            except Exception as e:
                self.answer(500, str(e).encode())

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        out = b""
        while size := int(self.rfile.readline(), 16):
            out += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return out

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        if os.environ.get("VERBOSE"):
            print(self.requestline, file=sys.stderr)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
