#include "strata/zoo/weights.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <set>
#include <vector>

#include "strata/base/text.h"

namespace strata::zoo {
namespace {

std::optional<at::ScalarType> to_torch(formats::DType dtype) {
  switch (dtype) {
    case formats::DType::kF32: return at::kFloat;
    case formats::DType::kF16: return at::kHalf;
    case formats::DType::kBF16: return at::kBFloat16;
    default: return std::nullopt;
  }
}

// At most five of a list, and how many more.
std::string some_of(const std::vector<std::string>& names) {
  const size_t shown = std::min<size_t>(names.size(), 5);
  std::string out = text::join(std::span(names).first(shown));
  if (names.size() > shown) out += fmt::format(" and {} more", names.size() - shown);
  return out;
}

const formats::TensorInfo* find(const formats::SafetensorsFolder& files, const Model& model,
                                const std::string& parameter) {
  const formats::TensorInfo* found = files.find(parameter);
  for (const std::string& alias : model.aliases_of(parameter)) {
    if (found == nullptr) found = files.find(alias);
  }
  return found;
}

}  // namespace

Result<WeightFiles> WeightFiles::open(const std::string& path, const Model& model) {
  STRATA_ASSIGN_OR_RETURN(auto folder, formats::SafetensorsFolder::open(path));
  WeightFiles files(std::move(folder), model.spec());
  std::vector<std::string> missing, misshaped, left_over;
  std::set<std::string> used;
  for (const model::UnitSpec& unit : model.spec().units) {
    for (const model::ParameterSpec& parameter : unit.parameters) {
      const formats::TensorInfo* tensor = find(*files.files_, model, parameter.name);
      if (tensor == nullptr) {
        missing.push_back(parameter.name);
        continue;
      }
      used.insert(tensor->name);
      files.name_in_file_[parameter.name] = tensor->name;
      if (tensor->shape != parameter.shape || !to_torch(tensor->dtype)) {
        misshaped.push_back(fmt::format("{} is {}, expected [{}]", tensor->name,
                                        formats::describe(*tensor),
                                        fmt::join(parameter.shape, ", ")));
      }
    }
  }
  for (const std::string& name : files.files_->names()) {
    if (!used.contains(name) && !model.is_ignored_in_files(name)) left_over.push_back(name);
  }
  if (missing.empty() && misshaped.empty() && left_over.empty()) return files;
  std::string why;
  if (!missing.empty()) why += fmt::format(" missing: {}.", some_of(missing));
  if (!misshaped.empty()) why += fmt::format(" of another shape or dtype: {}.", some_of(misshaped));
  if (!left_over.empty()) why += fmt::format(" not of this model: {}.", some_of(left_over));
  return invalid_argument(
      fmt::format("weights in '{}' do not fit the model:{} HINT: do config.json and the weights "
                  "belong together?",
                  path, why));
}

Status WeightFiles::read_unit(int unit, std::span<const at::Tensor> parameters) const {
  const model::UnitSpec& spec = spec_->units[static_cast<size_t>(unit)];
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = name_in_file_.at(spec.parameters[i].name);
    const formats::TensorInfo* tensor = files_->find(name);
    std::vector<std::byte> bytes(tensor->bytes);
    STRATA_RETURN_IF_ERROR(files_->read(name, 0, bytes));
    parameters[i].copy_(at::from_blob(bytes.data(), parameters[i].sizes(),
                                      at::TensorOptions(*to_torch(tensor->dtype))));
  }
  return {};
}

Status write_weights(const std::string& folder, const Model& model, const UnitReader& read_units,
                     bool is_writing) {
  std::optional<formats::SafetensorsWriter> writer;
  if (is_writing) {
    std::vector<formats::TensorSpec> specs;
    for (const model::UnitSpec& unit : model.spec().units) {
      for (const model::ParameterSpec& parameter : unit.parameters) {
        specs.push_back({parameter.name, formats::DType::kF32, parameter.shape});
      }
    }
    STRATA_ASSIGN_OR_RETURN(
        writer, formats::SafetensorsWriter::create(folder + "/model.safetensors", specs));
  }
  const auto write = [&](int unit, std::span<const at::Tensor> parameters) -> Status {
    if (!writer.has_value()) return {};
    const model::UnitSpec& spec = model.spec().units[static_cast<size_t>(unit)];
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::span<const float> values(parameters[i].const_data_ptr<float>(),
                                          static_cast<size_t>(parameters[i].numel()));
      STRATA_RETURN_IF_ERROR(writer->write(spec.parameters[i].name, std::as_bytes(values)));
    }
    return {};
  };
  STRATA_RETURN_IF_ERROR(read_units(write));
  return writer.has_value() ? writer->finish() : Status();
}

}  // namespace strata::zoo
