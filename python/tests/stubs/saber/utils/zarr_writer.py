class Writer:
    def __init__(self, path):
        self.path = path

    def write(self, run_name, image, masks):
        with open(self.path, "a") as file:
            file.write(f"{run_name} {image.shape} {masks.dtype}\n")


def get_zarr_writer(path):
    return Writer(path)
