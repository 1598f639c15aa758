import numpy as np


def masks_to_array(masks):
    return np.stack(masks)
