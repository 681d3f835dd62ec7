"""System calls that code of packages is refused: keys, other machines, namespaces of users.

Namespaces hide neither the keyrings of a user, with tickets of Kerberos, nor the sockets between a
virtual machine and its host. In a new namespace of users a process is root, before all of the
kernel that asks for root. In: the machine. Out: a program for seccomp. Standard library only,
Python 3.6 or newer.
"""

import errno
import os
import struct

try:
    import ctypes
except ImportError:  # a Python that was built without it
    ctypes = None

AF_VSOCK = 40
JOIN_SESSION_KEYRING = 1
SET_SECCOMP, FILTER = 22, 2  # of prctl
# machine: architecture as seccomp names it, then add_key, request_key, keyctl, socket, clone,
# unshare
NUMBERS = {
    "x86_64": (0xC000003E, 248, 249, 250, 41, 56, 272),
    "aarch64": (0xC00000B7, 217, 218, 219, 198, 220, 97),
}
# Everywhere. The first makes sockets without the call `socket`; the flags of the second lie in
# memory, where a filter cannot look, and programs that get ENOSYS call `clone`.
IO_URING_SETUP, CLONE3 = 425, 435
NEWUSER = 0x10000000
X32 = 0x40000000  # calls of x86_64 in its second numbering
LOAD, EQUAL, AT_LEAST, ANY_OF, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, REFUSE, MISSING = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS


def program(machine):
    """Return the filter for this machine, None for one whose numbers are unknown.

    Programs for another kind of machine, whose calls have other numbers, can call nothing.
    """
    if machine not in NUMBERS:
        return None
    architecture, add_key, request_key, keyctl, socket, clone, unshare = NUMBERS[machine]
    steps = [  # code, how many steps to leave out if true and if false, value
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 0, 15, architecture),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 13, 0, X32),
        (EQUAL, 12, 0, IO_URING_SETUP),
        (EQUAL, 11, 0, add_key),
        (EQUAL, 10, 0, request_key),
        (EQUAL, 9, 0, keyctl),
        (EQUAL, 9, 0, CLONE3),
        (EQUAL, 4, 0, socket),
        (EQUAL, 1, 0, clone),
        (EQUAL, 0, 4, unshare),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_OF, 3, 2, NEWUSER),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (EQUAL, 1, 0, AF_VSOCK),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, MISSING),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def refuse():
    """Refuse them to this process and its children; return why not, or "".

    It takes a keyring of its own first, so that nothing reaches the session's keyring. Before, the
    process gives up new privileges: the kernel asks for that.
    """
    machine = os.uname().machine
    steps = program(machine)
    if ctypes is None or steps is None or struct.calcsize("P") != 8:
        return "its Python has no ctypes" if ctypes is None else "its machine is unknown"
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall(ctypes.c_long(NUMBERS[machine][3]), ctypes.c_long(JOIN_SESSION_KEYRING), None)
    text = ctypes.create_string_buffer(steps, len(steps))
    head = struct.pack("@HP", len(steps) // 8, ctypes.addressof(text))
    zero, by_filter = map(ctypes.c_ulong, (0, FILTER))
    if library.prctl(SET_SECCOMP, by_filter, head, zero, zero) != 0:
        return "seccomp: " + os.strerror(ctypes.get_errno())
    return ""
