// The narrow set of LibTorch headers, precompiled once (design: compile time). Files include what
// they use all the same.
#ifndef STRATA_MODEL_TORCH_PCH_H_
#define STRATA_MODEL_TORCH_PCH_H_

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#endif  // STRATA_MODEL_TORCH_PCH_H_
