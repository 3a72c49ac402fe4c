// Models and cases for tests of the zoo: parameters bound to plain memory, no strategy.
#ifndef STRATA_TESTS_ZOO_FIXTURE_H_
#define STRATA_TESTS_ZOO_FIXTURE_H_

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "strata/formats/safetensors.h"
#include "strata/zoo/model.h"
#include "strata/zoo/weights.h"

namespace strata::tests {

inline std::string parity_case(const std::string& name) {
  return std::string(STRATA_SOURCE_DIR) + "/tests/data/parity/" + name;
}

// A tensor of a safetensors file, copied.
inline at::Tensor tensor_of(const formats::SafetensorsFile& file, const std::string& name) {
  const formats::TensorInfo info = file.require(name).value();
  const at::ScalarType type = info.dtype == formats::DType::kI64 ? at::kLong : at::kFloat;
  const auto bytes = file.data(info);
  return at::from_blob(const_cast<std::byte*>(bytes.data()), info.shape, type).clone();
}

// A model whose units lie in memory of their own.
class BoundModel {
 public:
  explicit BoundModel(const std::string& path, at::ScalarType dtype = at::kFloat) {
    at::set_num_threads(1);  // models are tiny: threads would only wait for each other
    auto loaded = zoo::load_model(path);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model = std::move(loaded).value();
    for (const model::UnitSpec& unit : model->spec().units) {
      const model::FlatLayout layout = model::make_flat_layout(unit, 64, 64);
      memory.emplace_back(static_cast<size_t>(layout.numel), 0.0F);
      storages.push_back(std::make_unique<model::UnitStorage>(unit, layout, dtype));
      storages.back()->bind(memory.back().data());
    }
    std::vector<model::UnitStorage*> units;
    for (const auto& storage : storages) units.push_back(storage.get());
    model->bind_units(units);
  }

  void load(const std::string& path) {
    auto files = zoo::WeightFiles::open(path, *model);
    ASSERT_TRUE(files.ok()) << files.status().message();
    for (size_t u = 0; u < storages.size(); ++u) {
      std::vector<at::Tensor> plain;
      for (const at::Tensor& parameter : storages[u]->parameters()) {
        plain.push_back(parameter.detach());
      }
      const Status read = files->read_unit(static_cast<int>(u), plain);
      ASSERT_TRUE(read.ok()) << read.message();
    }
  }

  const at::Tensor& parameter(const std::string& name) const {
    for (const auto& storage : storages) {
      for (size_t i = 0; i < storage->spec().parameters.size(); ++i) {
        if (storage->spec().parameters[i].name == name) return storage->parameter(i);
      }
    }
    ADD_FAILURE() << "no parameter " << name;
    return storages[0]->parameter(0);
  }

  std::unique_ptr<zoo::Model> model;
  std::vector<std::vector<float>> memory;  // 16-bit units use half of theirs
  std::vector<std::unique_ptr<model::UnitStorage>> storages;
  hooks::DirectRunner runner;
};

inline zoo::Batch batch_of(const formats::SafetensorsFile& file) {
  zoo::Batch batch;
  batch.input_ids = tensor_of(file, "input_ids");
  batch.labels = tensor_of(file, "labels");
  batch.attention_mask = tensor_of(file, "attention_mask");
  return batch;
}

}  // namespace strata::tests

#endif  // STRATA_TESTS_ZOO_FIXTURE_H_
