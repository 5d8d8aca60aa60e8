# Written by CMake: the PyTorch that the backend was built against.
TORCH_VERSION: str
