"""Random examples are the same in every run of the default tier, so that a run can be trusted; the
long tier looks for new ones.
"""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("new" if os.environ.get("NEPIT_TEST_LONG") else "same")
