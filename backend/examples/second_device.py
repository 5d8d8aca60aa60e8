"""A test base of one's own, named in TORCH_TEST_DEVICES.

PyTorch runs this file inside its module of test bases, so their names are
there; they must not be imported.
"""
# ruff: noqa: F821 (PrivateUse1TestBase is put there by PyTorch)


# [py-second-device] The same tests, on the second device.
class SecondDevice(PrivateUse1TestBase):
    @classmethod
    def get_primary_device(cls):
        return "openreg:1"


TEST_CLASS = SecondDevice
# [/py-second-device]

# expect: ok
