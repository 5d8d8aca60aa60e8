#pragma once

// In the place of PyTorch's header of this name, which declares all operators,
// while the files of this folder are compiled. c10d's headers need these alone.

#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
