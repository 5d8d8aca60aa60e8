"""Asks a device what PyTorch's own databases and interfaces hold it to.

`python -m torch_device_kit conform --device npu --import torch_npu` makes each
call of a row on the CPU and on the device `npu`, and compares all that comes
of it; `compare.faults` does so with a call of yours.
"""
