"""A pool of one worker over two pipes, for tests of pickling: a driver and a worker in processes of their own."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

from gangline._errors import describe
from gangline._pickling import Receiver, Sender, Unreadable

HERE = str(Path(__file__).parent)
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); sys.path += sys.argv[2:]; from miniature import serve; serve()"


class Failed(Exception):
    """An item has failed: the description of its error is the argument."""


class Pool:
    """Sends each list as one message, and waits for the answer."""

    def __init__(self, load, work, end=None):
        self.sender = Sender((load, work, end))
        self.start()

    def start(self):
        command = [sys.executable, "-c", BOOT, HERE, str(Path(sys.modules["gangline"].__file__).parents[1])]
        self.worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        pickle.dump(self.sender.setup, self.worker.stdin)

    def kill(self):
        self.worker.kill()
        self.worker.communicate()

    def restart(self):
        self.kill()
        self.start()

    def packed(self, items):
        """Return items as a message, or raise the first error."""
        message = []
        for packed in self.sender.pack(items):
            if isinstance(packed, BaseException):
                raise packed
            message.append(joined(packed))
        return message

    def answers(self, message):
        """Return the outputs as they come from the worker."""
        pickle.dump(message, self.worker.stdin)
        self.worker.stdin.flush()
        return pickle.load(self.worker.stdout)

    def map(self, items):
        outputs = []
        for ok, answer in self.answers(self.packed(items)):
            if not ok:
                raise Failed(answer)
            (output,) = self.sender.unpack([with_writable_buffers(answer)])
            if isinstance(output, Unreadable):
                raise output.error
            outputs.append(output)
        return outputs

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def joined(packed):
    pieces, buffers = packed
    return b"".join(pieces), [bytes(buffer) for buffer in buffers]


def with_writable_buffers(message):
    stream, buffers = message
    return stream, [bytearray(buffer) for buffer in buffers]


def serve():
    """Answer each message of a driver."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    receiver = Receiver(pickle.load(source))
    load, work, _ = receiver.functions
    state = None if load is None else load(None)
    while True:
        try:
            message = pickle.load(source)
        except EOFError:
            return
        answers = []
        for value in receiver.unpack([with_writable_buffers(packed) for packed in message]):
            try:
                if isinstance(value, Unreadable):
                    raise value.error
                (packed,) = receiver.pack([work(state, value)])
                if isinstance(packed, BaseException):
                    raise packed
                answers.append((True, joined(packed)))
            except BaseException as error:
                answers.append((False, tuple(describe(error))))
        pickle.dump(answers, sink)
        sink.flush()
