"""The script that a worker runs."""

import os
import sys

if __name__ == "__main__":
    # A script's own folder comes first, where modules of this package would hide others.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from gangline._native import worker_main

    worker_main()
    sys.exit("this script is started by a pool")
