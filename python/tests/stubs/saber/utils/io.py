import numpy as np


def read_micrograph(path):
    with open(path) as file:
        return np.full((8, 8), int(file.read())), 1.0
