import os

# a sanitizer would have to be loaded before Python
collect_ignore_glob = ["test_*.py"] if "asan" in os.environ.get("NEPIT_BUILD", "") else []
