"""The predictor of easycore's tutorial with ONNX Runtime in place of PyTorch. It reads model.onnx."""

import numpy as np
import onnxruntime
from gangline.compat import OrderedRunner

class Predictor(OrderedRunner):
    @staticmethod
    def producer_init(device, cfg):
        cfg.session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])

    @staticmethod
    def producer_work(device, cfg, data):
        data = np.array([[data]], dtype=np.float32)
        return cfg.session.run(None, {"x": data})[0]

    @staticmethod
    def producer_end(device, cfg):
        del cfg.session

    @staticmethod
    def consumer_init(cfg):
        cfg.data_list = []

    @staticmethod
    def consumer_work(cfg, data):
        cfg.data_list.append(data)

    @staticmethod
    def consumer_end(cfg):
        return np.concatenate(cfg.data_list)

if __name__ == '__main__':
    predictor = Predictor(devices=4)
    result = predictor(range(100))
    print(result.shape, result[:3, 0])
    predictor.close()
