"""The listings of SABER's page on GPUPool, one below the other, with the import changed."""

import os

import numpy as np
import torch
from saber.filters import masks as mask_filters
from saber.filters.downsample import FourierRescale2D
from saber.utils import io, zarr_writer

model_weights, model_config, target_class = "model.pth", "config.yaml", 1

from saber.segmenters.micro import cryoMicroSegmenter
from saber.classifier.models import common

def initialize_model(
    gpu_id:int,
    model_weights:str, model_config:str,
    target_class:int, sam2_cfg:str):
    """Load micrograph segmentation models once per GPU"""

    torch.cuda.set_device(gpu_id)

    # Load models
    predictor = common.get_predictor(model_weights, model_config, gpu_id)
    segmenter = cryoMicroSegmenter(
        sam2_cfg=sam2_cfg,
        deviceID=gpu_id,
        classifier=predictor,
        target_class=target_class
    )

    return {
        'predictor': predictor,
        'segmenter': segmenter
    }

def process_task(
    input:str, output: str,
    scale_factor: float, gpu_id, models):

    # Get the Global Zarr Writer
    zwriter = zarr_writer.get_zarr_writer(output)

    # Use pre-loaded segmenter
    segmenter = models['segmenter']

    # Ensure we're on the correct GPU
    torch.cuda.set_device(gpu_id)

    # Read the Micrograph
    image, pixel_size = io.read_micrograph(input)
    image = image.astype(np.float32)

    # Downsample the input image
    image = FourierRescale2D.run(image, scale_factor)

    # Produce Initialial Segmentations with SAM2
    segmenter.segment( image, display_image=False )
    (image0, masks_list) = (segmenter.image0, segmenter.masks)

    # Convert Masks to Numpy Array
    masks = mask_filters.masks_to_array(masks_list)

    # Write Run to Zarr
    input = os.path.splitext(os.path.basename(input))[0]
    zwriter.write(run_name=input, image=image0, masks=masks.astype(np.uint8))

from gangline import compat as parallelization
import glob

# Get all micrograph files
files = glob.glob("path/to/micrographs/*.mrc")

# Create processing pool
pool = parallelization.GPUPool(
    init_fn=initialize_model,
    init_args=("large", model_weights, model_config, target_class),
    verbose=True
)

# Prepare tasks
tasks = [(fname, "output.zarr", 2) for fname in files]

# Execute batch processing
try:
    pool.execute(
        process_task,
        tasks,
        task_ids=files,
        progress_desc="Processing micrographs"
    )
finally:
    pool.shutdown()
