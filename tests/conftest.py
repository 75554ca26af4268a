"""Settings of all tests, and of the processes they start."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other collapse on a busy machine

from hypothesis import settings

settings.register_profile("lehd", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("lehd")
