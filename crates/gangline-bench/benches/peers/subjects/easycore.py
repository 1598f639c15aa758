"""Sums the results of easycore's runner: ITEMS DEVICES SECONDS FACTOR ADDEND, prints the sum and the seconds."""

import multiprocessing
import sys
import time

# Classes of a script given on the command line cannot be imported by a fresh interpreter.
multiprocessing.set_start_method("fork")

from easycore.common.parallel import OrderedRunner  # noqa: E402

MASK = 2**64 - 1
ITEMS, DEVICES = int(sys.argv[1]), int(sys.argv[2])
SECONDS = float(sys.argv[3])
FACTOR, ADDEND = int(sys.argv[4]), int(sys.argv[5])


class Sum(OrderedRunner):
    @staticmethod
    def producer_work(device, cfg, x):
        end = time.perf_counter() + SECONDS
        while SECONDS and time.perf_counter() < end:
            pass
        return (FACTOR * x + ADDEND) & MASK

    @staticmethod
    def consumer_init(cfg):
        cfg.sum = 0

    @staticmethod
    def consumer_work(cfg, y):
        cfg.sum = (cfg.sum + y) & MASK

    @staticmethod
    def consumer_end(cfg):
        return cfg.sum


runner = Sum(devices=DEVICES)
start = time.perf_counter()
total = runner(range(ITEMS))
print(total, time.perf_counter() - start)
runner.close()
