"""One link of a chain of plain HTTP servers, for benchmarks.distribution. Standard library only.

The first line of standard input is a JSON object: `address`, `port` and `token` of this server,
`path` and `size` of the file, `sources` (servers to fetch from, the nearest first; none if the
file is here) and `patience`, seconds of silence after which the next source is asked. Prints its
process id once it listens, begins with the next line, and prints `done` once the file is here. Ends
when standard input does.
"""

import http.client
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn

CHUNK = 1 << 16


class Relayed:
    """A file of known size: the bytes from its start that are here already."""

    def __init__(self, path, size, have):
        self.size, self._have, self._more = size, have, threading.Condition()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def add(self, data):
        """Append bytes; return how many are here."""
        if data:
            os.pwrite(self._file, data, self._have)
            with self._more:
                self._have += len(data)
                self._more.notify_all()
        return self._have

    def read(self, start):
        """Return the bytes from here on, as soon as there are any."""
        with self._more:
            self._more.wait_for(lambda: self._have > start)
        return os.pread(self._file, min(CHUNK, self._have - start), start)


class Server(ThreadingMixIn, HTTPServer):
    """Serves one file to those who know its token."""

    daemon_threads = True

    def handle_error(self, *_):  # who fetches has ended, or asks another
        pass


def handler(file, token):
    """Return the handler of requests for this file."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            start = int(self.headers.get("Range", "bytes=0-")[6:-1])
            if self.path != "/" + token or not 0 <= start < file.size:
                return self.send_error(404)
            self.send_response(206)
            self.send_header("Content-Length", str(file.size - start))
            self.send_header("Content-Range", f"bytes {start}-{file.size - 1}/{file.size}")
            self.end_headers()
            while start < file.size:
                data = file.read(start)
                self.wfile.write(data)
                start += len(data)
            return None

        def log_message(self, *_):
            pass

    return Handler


def fetch(file, sources, token, patience):
    """Fetch the file, from the next source wherever one fails, and say that it is here."""
    turn, have = 0, file.add(b"")
    while have < file.size:
        address, port = sources[turn % len(sources)]
        server = http.client.HTTPConnection(address, port, timeout=patience)
        try:
            server.request("GET", "/" + token, headers={"Range": f"bytes={have}-"})
            answer = server.getresponse()
            while data := answer.read1(min(CHUNK, file.size - have)):
                have = file.add(data)
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            server.close()
        turn += 1
    print("done", flush=True)


def main():
    """Serve, fetch, say that it is done; end with standard input."""
    spec = json.loads(sys.stdin.readline())
    size, sources = spec["size"], spec["sources"]
    file = Relayed(spec["path"], size, 0 if sources else size)
    server = Server((spec["address"], spec["port"]), handler(file, spec["token"]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(os.getpid(), flush=True)
    sys.stdin.readline()  # until all others listen
    job = (file, sources, spec["token"], spec["patience"])
    threading.Thread(target=fetch, args=job, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
