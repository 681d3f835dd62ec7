"""Give files to other nodes while they arrive, and fetch files from such nodes.

plugins/action/transfer.py runs this file on a node, by standard input; `main` gets a dict:

- `port` and `token` of the server here;
- `files`, each with `path`, `size`, `sha256` and `pieces`, the hashes of its pieces;
- `sources`, the addresses of nodes to fetch from, each with its token, the nearest first. Without
  any, the controller sends the files, and they are given to others while they grow;
- `patience`, in seconds: a source that gives no piece for so long is left;
- `pace`, in seconds: so is a source whose pieces take longer than this on average;
- `again`, whether the node asks others again if these are LOST: it gives nothing meanwhile.

It prints JSON once the files are here or no source gives them. A process stays and serves them,
until nobody asks any more or this user's next run needs the port. A piece is neither kept nor given
to others before its hash is compared.

Standard library only, Python 3.6 or newer.
"""

import codecs
import contextlib
import hashlib
import http.client
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer, ThreadingMixIn

PIECE = 1 << 20
START = 5  # seconds within which a source must be listening, and know the file
LINGER = 30  # seconds after the last byte for which the server stays, or for `patience`
LONGEST = 3600  # the same while somebody still fetches
IDLE = 1  # seconds without a byte, after which a server gives way to the next one
LOST = {"silent", "damaged"}  # failures of sources that were reached
CLIENTS = 16
NOBODY = 65534


class Arriving:
    """A file of which more and more pieces are here, from its start."""

    def __init__(self, path, size, sha256, pieces):
        self.size, self.sha256, self._pieces = size, sha256, pieces
        self.have, self.changed, self._grown = 0, time.monotonic(), 0
        self._more = threading.Condition()
        with contextlib.suppress(OSError):  # a lost run that still fetches cuts off its own file
            os.unlink(path)
        self._written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        os.ftruncate(self._written, 0)
        self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)

    def end(self):
        """Write no more. The controller sends a file that is not whole, from its start."""
        if not self.whole:  # else a node that asks from the start finds it cut off meanwhile
            with self._more:
                os.ftruncate(self._written, 0)
                self.have, self.changed = 0, time.monotonic()
        os.close(self._written)  # nobody can start a program, such as uv, that is written to

    @property
    def whole(self):
        """Whether all of it is here."""
        return self.have == self.size

    @property
    def wanted(self):
        """The length of the next piece."""
        return min(PIECE, self.size - self.have)

    def add(self, piece):
        """Write the next piece; return a word for a problem, if there is one."""
        if not self._is_next(piece):
            return "damaged" if len(piece) == self.wanted else "silent"
        try:
            written = os.pwrite(self._written, piece, self.have)
        except OSError:
            written = 0
        if written < len(piece):  # a full disk takes a part of it first
            return "unwritten"
        self._count(piece)
        return ""

    def look(self):
        """Count the pieces that the controller has written.

        A part of one shows that it still writes: with a low bandwidth, a piece takes long.
        """
        grown = os.fstat(self._file).st_size
        if grown != self._grown:
            self._grown, self.changed = grown, time.monotonic()
        while not self.whole:
            piece = os.pread(self._file, self.wanted, self.have)
            if len(piece) < self.wanted or not self._is_next(piece):
                break
            self._count(piece)

    def read(self, start, seconds):
        """Return bytes from here on as soon as there are some; b"" if none come in time."""
        with self._more:
            self._more.wait_for(lambda: self.have > start, seconds)
        return os.pread(self._file, max(0, min(1 << 16, self.have - start)), start)

    def _is_next(self, piece):
        return hashlib.sha256(piece).hexdigest() == self._pieces[self.have // PIECE]

    def _count(self, piece):
        with self._more:
            self.have += len(piece)
            self.changed = time.monotonic()
            self._more.notify_all()


class Server(ThreadingMixIn, HTTPServer):
    """Gives files to those who know the token."""

    daemon_threads = True

    def __init__(self, family, files, spec):
        self.address_family = family
        self.by_path = {"/{}/{}".format(spec["token"], file.sha256): file for file in files}
        self.linger = max(LINGER, spec["patience"])
        self.clients = threading.BoundedSemaphore(CLIENTS)
        self.strangers = []  # connections that have named no file so far, the oldest first
        self.ended = time.monotonic()  # the last request
        super().__init__(("", spec["port"]), Handler)
        self.user, self.asking = os.geteuid(), []
        self.successors = socket.socket(socket.AF_UNIX)
        self.successors.setblocking(False)
        with contextlib.suppress(OSError):  # if another user has the name, it gives way to nobody
            self.successors.bind(waiting_room(spec["port"]))
            self.successors.listen(1)

    def server_bind(self):
        """Listen for both IPv6 and IPv4. No name is looked up, as HTTPServer does."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def is_wanted(self):
        """Return whether the next server of the same user waits for the port."""
        with contextlib.suppress(OSError):  # nobody has asked
            asking = self.successors.accept()[0]
            identity = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("iII", identity)[1] == self.user:
                self.asking.append(asking)  # which ends with this process
            else:
                asking.close()
        return bool(self.asking)

    def process_request(self, request, client_address):
        """Serve a client, unless there are too many who know the token."""
        if self.clients.acquire(blocking=False) or self.end_stranger():
            self.strangers.append(request)
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def end_stranger(self):
        """End the oldest client that may not know the token; return whether another is served."""
        try:
            oldest = self.strangers.pop(0)
        except IndexError:
            return False
        with contextlib.suppress(OSError):  # it has just gone
            oldest.shutdown(socket.SHUT_RDWR)
        return self.clients.acquire(timeout=1)

    def know(self, request):
        """Note that a client knows the token, or has gone."""
        with contextlib.suppress(ValueError):
            self.strangers.remove(request)

    def process_request_thread(self, request, client_address):
        """Serve a client in a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.know(request)
            self.clients.release()

    def handle_error(self, *_):  # who fetches has gone, or asks another node
        pass


class Handler(BaseHTTPRequestHandler):
    """One request for a file, from a place on."""

    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_GET(self):
        """Send the bytes that are here, then the following ones."""
        file = self.server.by_path.get(self.path)
        start = re.match(r"bytes=([0-9]{1,15})-\Z", self.headers.get("Range", "bytes=0-"))
        if not file or not start or int(start.group(1)) >= file.size:
            return self.send_error(404)
        self.server.know(self.request)
        place = int(start.group(1))
        self.send_response(206)
        self.send_header("Content-Length", str(file.size - place))
        self.send_header("Content-Range", f"bytes {place}-{file.size - 1}/{file.size}")
        self.end_headers()
        while place < file.size:
            data = file.read(place, self.server.linger)
            if not data:
                self.close_connection = True
                break
            self.wfile.write(data)
            self.server.ended = time.monotonic()
            place += len(data)
        return None

    def log_message(self, *_):
        pass


def waiting_room(port):
    """Return the name of the socket at which the next server asks for the port; it has no file."""
    return f"\0fleetbuild-peers-{port}"


def listen(files, spec):
    """Return a server; if the port is in use by one that an earlier run has left, wait for it."""
    try:
        return bound(files, spec)
    except OSError:
        with socket.socket(socket.AF_UNIX) as former, contextlib.suppress(OSError):
            former.settimeout(START - IDLE)
            former.connect(waiting_room(spec["port"]))
            former.recv(1)  # nothing comes, but the end
        return bound(files, spec)


def bound(files, spec):
    """Return a server, for IPv6 too where the node has it."""
    try:
        return Server(socket.AF_INET6, files, spec)
    except OSError:
        return Server(socket.AF_INET, files, spec)


def fetch(files, spec):
    """Fetch the files, from the next source wherever one fails; return why, by address."""
    failures, start = {}, time.monotonic() + START
    for address in spec["sources"]:
        for file in files:
            if address not in failures and not file.whole:
                failures.update(fetch_from(address, file, spec, start))
    return failures


def fetch_from(address, file, spec, start):
    """Fetch the rest of a file; return the reason, by address, if it does not come."""
    had = file.have
    while True:
        reason = ask(address, file, spec)
        early = file.have == had and time.monotonic() < start
        # It may be the server of an earlier run that has not given way yet.
        if not early or reason not in ("refused", "unknown"):
            return {address: reason} if reason else {}
        time.sleep(0.1)


def ask(address, file, spec):
    """Fetch the rest of a file by one request; return a word for what went wrong."""
    server = http.client.HTTPConnection(address, spec["port"], timeout=START)
    done, connection = threading.Event(), None
    try:
        server.connect()
        connection = server.sock  # http.client drops it at the end of the answer
        watch = (connection, file, spec, done)
        threading.Thread(target=end_silence, args=watch, daemon=True).start()
        path = "/{}/{}".format(spec["sources"][address], file.sha256)
        connection.settimeout(spec["patience"])
        server.request("GET", path, headers={"Range": f"bytes={file.have}-"})
        answer = server.getresponse()
        if answer.status != 206:
            return "unknown"
        # Without a length, as in chunks, http.client may read without an end.
        if answer.length != file.size - file.have:
            return "silent"
        while not file.whole:
            problem = file.add(answer.read(file.wanted))
            if problem:
                return problem
    except ConnectionRefusedError:
        return "refused"
    except (OSError, ValueError, http.client.HTTPException):  # a name may be none of DNS's
        return "silent" if connection else "unreachable"
    finally:
        done.set()
        server.close()
    return ""


def end_silence(connection, file, spec, done):
    """End a connection that has brought no piece for too long, or too few of them."""
    began, had = time.monotonic(), file.have
    while not done.wait(0.2):
        now, pieces = time.monotonic(), (file.have - had) / PIECE
        silent = now - max(began, file.changed) > spec["patience"]
        if silent or now - began > spec["patience"] + spec["pace"] * pieces:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            return


def serve(server, files, spec, report):
    """Fetch, say how it went, and serve until nobody asks any more."""
    failures = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fetching = threading.Thread(target=lambda: failures.update(fetch(files, spec)), daemon=True)
    fetching.start()
    while fetching.is_alive():
        report.write(b"\n")  # raises once the controller is gone
        fetching.join(1)
    missing = sorted(file.sha256 for file in files if not file.whole)
    for file in files:
        file.end()
    report.write(json.dumps({"missing": missing, "failures": failures}).encode("utf-8"))
    report.close()
    if missing and spec["again"] and LOST.intersection(failures.values()):
        return
    while True:
        for file in files:
            file.look()
        idle = time.monotonic() - max(file.changed for file in files)
        quiet = min(idle, time.monotonic() - server.ended)
        if quiet > (IDLE if server.is_wanted() else server.linger) or idle > LONGEST:
            break
        time.sleep(0.05)


def main(spec):
    """Start the server and wait for the files, if there are sources."""
    files = [
        Arriving(file["path"], file["size"], file["sha256"], file["pieces"])
        for file in spec["files"]
    ]
    try:
        server = listen(files, spec)
    except OSError:
        missing = [file.sha256 for file in files]
        sys.stdout.write(json.dumps({"missing": missing, "failures": {"": "port"}}))
        return
    codecs.lookup("idna")  # for names of nodes; nobody may not be able to read Python's modules
    if os.geteuid() == 0:  # the files are open: the rest needs no rights
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        with contextlib.suppress(OSError):
            serve(server, files, spec, os.fdopen(write, "wb", 0))
        os._exit(0)
    os.close(write)
    if not repeated(read, START + spec["patience"]):
        os.kill(child, signal.SIGKILL)


def repeated(pipe, patience):
    """Repeat what the process says; return False if it is silent or the controller is gone."""
    try:
        while select.select([pipe], [], [], patience)[0]:
            said = os.read(pipe, 1 << 16)
            if not said:
                return True
            sys.stdout.write(said.decode("utf-8"))
            sys.stdout.flush()
    except OSError:
        pass
    return False
