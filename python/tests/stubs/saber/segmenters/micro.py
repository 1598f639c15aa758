import torch


class cryoMicroSegmenter:
    def __init__(self, sam2_cfg, deviceID, classifier, target_class):
        self.device, self.classifier = deviceID, classifier

    def segment(self, image, display_image):
        assert self.device == torch.cuda.device
        if image.max() > 100:
            raise ValueError("out of focus")
        self.image0, self.masks = image, [image > 0]
