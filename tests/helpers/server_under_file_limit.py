"""A server of a scripted agent with a low limit of open files: the argument. It prints its address.

tests/serving/test_connections.py runs this program.
"""

import resource
import sys

from tests.helpers.served import released_agent
from uivlm.serving.server import serve

if __name__ == "__main__":
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    serve({"tiny": released_agent()}, port=0)
