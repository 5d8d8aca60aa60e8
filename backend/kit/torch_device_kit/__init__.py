"""Says what a `PrivateUse1` device of PyTorch has, lacks and gets wrong.

`python -m torch_device_kit doctor --device npu --import torch_npu` tries the
rows of the tables of The OpenReg Book on the device `npu`, which the package
`torch_npu` brings; see `torch_device_kit.doctor` to do so from Python. It
needs PyTorch and the device, and no file of either is changed.
"""
