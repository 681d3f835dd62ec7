"""One peer of libtorrent, for benchmarks.distribution. Needs the package libtorrent.

`torrent.py FILE TORRENT` writes the torrent of a file. Without arguments, the first line of
standard input is a JSON object: `address` and `port` of this peer, the `folder` of the file, the
path of the `torrent`, and `peers`. Peers are named, so tracker, DHT and multicast are off. Prints
its process id, then a line once the file is there; ends with its standard input.
"""

import json
import os
import sys
import time
from pathlib import Path

import libtorrent


def make(file: str, torrent: str) -> None:
    """Write the torrent of a file."""
    files = libtorrent.file_storage()
    libtorrent.add_files(files, file)
    made = libtorrent.create_torrent(files)
    libtorrent.set_piece_hashes(made, str(Path(file).parent))
    Path(torrent).write_bytes(libtorrent.bencode(made.generate()))


def share() -> None:
    """Have the file and give it to others, until standard input ends."""
    spec = json.loads(sys.stdin.readline())
    session = libtorrent.session({
        "listen_interfaces": f"{spec['address']}:{spec['port']}", "enable_dht": False,
        "enable_lsd": False, "enable_upnp": False, "enable_natpmp": False,
        "enable_outgoing_utp": False, "enable_incoming_utp": False,  # uTP yields to other traffic
    })  # fmt: skip
    wanted = libtorrent.add_torrent_params()
    wanted.ti, wanted.save_path = libtorrent.torrent_info(spec["torrent"]), spec["folder"]
    handle = session.add_torrent(wanted)
    print(os.getpid(), flush=True)
    sys.stdin.readline()  # a peer that does not have the torrent yet would refuse the others
    for peer in spec["peers"]:
        handle.connect_peer(tuple(peer))
    while not handle.status().is_seeding:
        time.sleep(0.05)
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    make(*sys.argv[1:]) if sys.argv[1:] else share()
