class Module:
    def to(self, device):
        self.device = device
        return self

    def __call__(self, x):
        assert x.device == self.device, (x.device, self.device)
        return self.forward(x)


class Linear(Module):
    def __init__(self, inputs, outputs):
        self.outputs = outputs

    def __call__(self, x):
        from torch import Tensor

        return Tensor([[row[0] * weight for weight in range(self.outputs)] for row in x.rows]).to(x.device)
