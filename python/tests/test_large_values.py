"""Inputs and outputs that go through shared memory, which is used again: none may change once it has arrived."""

import os
import signal
import time

import numpy as np
import pytest
from conftest import HERE, PATIENCE

from gangline import Pipeline, Pool

#: Lengths of arrays of 8 bytes each: some below and at the least size of shared memory, and some above.
LENGTHS = (1, 8_000, 8_192, 8_193, 20_000, 150_000)


def new_list(context):
    return []


def keep(kept, array):
    """Keep the input for ever, and tell which of those before it have changed."""
    wrong = [number for number, old in kept if not (old == number).all()]
    kept.append((int(array[0]), array))
    return wrong


def change(state, array):
    array[:] = -1
    return array


def change_and_die_once(state, job):
    path, array = job
    was = float(array[0]), float(array[-1])
    array[:] = -1
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return was


def arrays(count):
    return [np.full(LENGTHS[number % len(LENGTHS)], float(number)) for number in range(count)]


def twice(state, array):
    return array * 2


def test_what_a_task_keeps_for_ever_keeps_its_content():
    with Pool(new_list, keep, workers=2) as pool:
        assert pool.map(arrays(120)) == [[]] * 120


@pytest.mark.parametrize("batch", [None, 8])
def test_outputs_that_are_kept_keep_their_content_also_behind_the_end(batch):
    work = twice if batch is None else twice_each
    with Pool(None, work, workers=2, batch=batch) as pool:
        records = list(pool.imap(arrays(200)))
        pool.map(arrays(50))
    assert all((record.value == 2 * number).all() for number, record in enumerate(records))
    records[3].value[:] = 7
    assert (records[9].value == 18).all()


def twice_each(state, arrays):
    return [array * 2 for array in arrays]


def test_what_a_task_writes_into_its_input_is_seen_by_no_other():
    given = np.full(100_000, 5.0)
    with Pool(None, change, workers=2) as pool:
        outputs = pool.map([given] * 20)
    assert (given == 5).all()
    assert all((output == -1).all() for output in outputs)


def test_a_retry_sees_the_input_as_it_was(tmp_path):
    jobs = [(str(tmp_path / str(number)), np.full(100_000, float(number))) for number in range(10)]
    with Pool(None, change_and_die_once, workers=2) as pool:
        assert pool.map(jobs) == [(float(number), float(number)) for number in range(10)]


def test_ten_thousand_arrays_are_kept_with_few_descriptors(script):
    process = script(
        f"""
import os, resource, sys
sys.path.insert(0, {str(HERE)!r})
import numpy as np
import gangline, test_large_values
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
with gangline.Pool(None, test_large_values.twice, workers=2) as pool:
    kept = pool.map(np.full(9_000, float(number)) for number in range(10_000))
    assert len(os.listdir("/proc/self/fd")) < 64
print(all((array == 2 * number).all() for number, array in enumerate(kept)))
"""
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err) == ("True\n", "")


def test_large_texts_and_bytes_come_back_with_their_parts():
    mixed = ("é" * 50_000, bytes(range(256)) * 4_000, np.arange(200_000), {"a": bytearray(3 << 20)})
    values = [mixed, b"x" * (9 << 20)]
    with Pool(None, same, workers=2) as pool:
        outputs = pool.map(values * 3)
    for number, output in enumerate(outputs):
        if number % 2:
            assert output == values[1]
        else:
            text, data, array, more = output
            assert (text, data, more) == (values[0][0], values[0][1], values[0][3])
            assert (array == values[0][2]).all()


def same(state, value):
    return value


def test_values_pass_through_stages_and_outlive_the_workers():
    with Pipeline().stage(square, workers=2).stage(square, workers=2) as pipeline:
        outputs = pipeline.map([np.full(200_000, float(number)) for number in range(20)])
    outputs[0][:] = 5
    assert all((output == number**4).all() for number, output in enumerate(outputs) if number)


def square(array):
    return array**2


def test_more_large_outputs_are_kept_than_descriptors_are_left(script):
    process = script(
        f"""
import os, resource, sys
sys.path.insert(0, {str(HERE)!r})
import numpy as np
import gangline, test_large_values
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
with gangline.Pool(None, test_large_values.twice, workers=1) as pool:
    kept = pool.map(np.full(140_000, float(number)) for number in range(200))
    assert len(os.listdir("/proc/self/fd")) < 64
    open("/dev/null").close()
print(all((array == 2 * number).all() for number, array in enumerate(kept)))
"""
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err) == ("True\n", "")


def memory_in_files():
    """The bytes of the shared memory that this process writes or reads."""
    files = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(512 * os.stat(file).st_blocks for file in files if "gangline-memory" in link_of(file))


def link_of(file):
    try:
        return os.readlink(file)
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("batch", [None, 4])
def test_memory_is_used_again(batch):
    work = twice if batch is None else twice_each
    before = memory_in_files()
    with Pool(None, work, workers=1, batch=batch) as pool:
        for number, output in enumerate(pool.imap(np.full(150_000, float(number)) for number in range(400))):
            assert output.value[0] == 2 * number
        # Each way 480 MB have gone.
        assert memory_in_files() - before < 150 << 20


class Noting:
    """An input that notes whether ``work`` ran in the process when it was unpickled."""

    works = False

    def __init__(self, meanwhile=False):
        self.meanwhile = meanwhile

    def __reduce__(self):
        return unpickled, ()


def unpickled():
    return Noting(Noting.works)


def work_for_a_while(state, inputs):
    Noting.works = True
    time.sleep(0.001)
    Noting.works = False
    return [each.meanwhile for each in inputs]


def test_the_next_list_is_unpickled_while_work_waits():
    with Pool(None, work_for_a_while, workers=1, batch=4) as pool:
        assert any(pool.map(Noting() for _ in range(800)))
