#!/usr/bin/env python3
"""
supervise.py: runs a program for so many seconds at most, and leaves nothing of it.

    python3 supervise.py SECONDS PROGRAM [ARGUMENT...]

Whatever the program started, and what that started in its turn, is ended with it,
in sessions and process groups of its own or not: orphans come to this process,
which has made itself their reaper, and are found among its descendants.  The exit
code is the program's; 1 if it took too long, or if it left processes behind: it
should have stopped them itself.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
MOMENT = 2                                  # seconds
GRACE = 10                                  # seconds between SIGTERM and SIGKILL


def children():
    """The children of every process that has some."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except OSError:
                continue                    # it has ended
            if state != "Z":
                found.setdefault(int(parent), []).append(int(name))
    return found


def descendants():
    tree = children()
    found = []
    level = [os.getpid()]
    while level:
        level = [child for parent in level for child in tree.get(parent, [])]
        found += level
    return found


def command_of(process):
    try:
        with open("/proc/%d/cmdline" % process) as file:
            return file.read().replace("\0", " ").strip()
    except OSError:
        return "gone"


def send(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def still_there():
    """What has not ended by itself a moment after the program."""
    end = time.monotonic() + MOMENT
    while descendants() and time.monotonic() < end:
        time.sleep(0.05)
        reap()
    return descendants()


def end_all():
    """SIGTERM, then SIGKILL, until there is nothing left."""
    end = time.monotonic() + GRACE
    send(descendants(), signal.SIGTERM)
    while descendants():
        if time.monotonic() > end:
            send(descendants(), signal.SIGKILL)
        time.sleep(0.05)
        reap()


def main():
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    rc = 1
    try:
        program = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
        try:
            rc = program.wait(timeout=float(sys.argv[1]))
        except subprocess.TimeoutExpired:
            print("# not over after %s seconds" % sys.argv[1], flush=True)
            return 1
        left = [command_of(process) for process in still_there()]
        if left:
            print("\n".join("# left behind: " + command for command in left), flush=True)
            return rc or 1
        return 1 if rc < 0 else rc
    finally:
        end_all()


if __name__ == "__main__":
    sys.exit(main())
