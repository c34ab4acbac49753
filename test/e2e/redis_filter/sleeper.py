"""
sleeper.py: worker.py of doc/patterns, which falls asleep between its claim and its call.

    python3 sleeper.py OPERATION CHANNEL
"""

import os
import signal
import sys

sys.path.insert(0, os.environ["PATTERNS"])
from worker import Channel, Worker


class Sleeper(Worker):
    def act(self, grant, ends_at):
        os.kill(os.getpid(), signal.SIGSTOP)
        super().act(grant, ends_at)


Sleeper(sys.argv[1], Channel(sys.argv[2])).work()
