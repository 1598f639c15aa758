"""SABER's micrographs on its GPUPool, with ONNX Runtime in place of its models. It reads model.onnx and *.npy."""

import glob

import numpy as np
import onnxruntime
from gangline import compat as parallelization

def initialize_model(gpu_id: int, weights: str):
    # With onnxruntime-gpu: providers=[("CUDAExecutionProvider", {"device_id": gpu_id})]
    return {"session": onnxruntime.InferenceSession(weights, providers=["CPUExecutionProvider"])}

def process_task(input: str, scale_factor: int, gpu_id, models):
    image = np.load(input)[::scale_factor].astype(np.float32)
    if not np.isfinite(image).all():
        raise ValueError("out of focus")
    (masks,) = models["session"].run(None, {"x": image.reshape(-1, 1)})
    return float(masks.sum())

if __name__ == '__main__':
    files = sorted(glob.glob("*.npy"))
    pool = parallelization.GPUPool(init_fn=initialize_model, init_args=("model.onnx",))
    try:
        records = pool.execute(process_task, [(fname, 2) for fname in files], task_ids=files)
    finally:
        pool.shutdown()
    for record in records:
        print(record["task_id"], record["result"] if record["success"] else record["error"].splitlines()[0])
