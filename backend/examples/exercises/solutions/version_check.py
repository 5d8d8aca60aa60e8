# [py-version-check-solution] What follows a plus sign names the build.
def check(built: str, installed: str) -> None:
    if installed.partition("+")[0] != built:
        raise ImportError(
            f"torch_acme was built against PyTorch {built}, but PyTorch "
            f"{installed} is installed. Install that version, or build "
            "torch_acme again."
        )


# [/py-version-check-solution]

# expect: ok
