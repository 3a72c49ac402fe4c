#include "tests/parity/parity_case.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

namespace strata::parity {
namespace {

using formats::Json;

Result<std::vector<Json>> read_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) return not_found(fmt::format("parity: cannot read '{}'", path));
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) {
    STRATA_ASSIGN_OR_RETURN(lines.emplace_back(), formats::parse_json(line, path));
  }
  return lines;
}

zoo::Batch rows_of(const zoo::Batch& batch, int64_t first, int64_t count) {
  zoo::Batch out;
  out.input_ids = batch.input_ids.narrow(0, first, count);
  out.labels = batch.labels.narrow(0, first, count);
  out.attention_mask = batch.attention_mask.narrow(0, first, count);
  return out;
}

zoo::Batch without_labels(const zoo::Batch& batch) {
  zoo::Batch out = rows_of(batch, 0, 1);
  out.labels = at::full_like(out.labels, -100);
  return out;
}

// The precision of the case.
Result<std::string> check_kind(const Json& description, const std::string& folder) {
  const std::string family = description.value("family", "");
  const std::string dtype = description.value("dtype", "");
  if (family == "gpt2" && dtype == "float32") return std::string("32");
  if (family == "gpt2" && dtype == "bfloat16 mixed") return std::string("bf16-mixed");
  return unsupported(
      fmt::format("parity: '{}' is a case of family '{}' in {}. HINT: supported is gpt2 in float32 "
                  "and bfloat16 mixed",
                  folder, family, dtype));
}

}  // namespace

Result<at::Tensor> read_tensor(const formats::SafetensorsFile& file, const std::string& name) {
  STRATA_ASSIGN_OR_RETURN(const formats::TensorInfo info, file.require(name));
  if (info.dtype != formats::DType::kI64 && info.dtype != formats::DType::kF32) {
    return unsupported(fmt::format("parity: {} in '{}' is neither int64 nor float32",
                                   formats::describe(info), file.path()));
  }
  const bool is_int = info.dtype == formats::DType::kI64;
  const auto bytes = file.data(info);
  return at::from_blob(const_cast<std::byte*>(bytes.data()), info.shape,
                       is_int ? at::kLong : at::kFloat)
      .clone();
}

Result<Case> Case::load(const std::string& folder) {
  Case out;
  out.folder = folder;
  STRATA_ASSIGN_OR_RETURN(out.description, formats::read_json(folder + "/case.json"));
  STRATA_ASSIGN_OR_RETURN(out.precision, check_kind(out.description, folder));
  STRATA_ASSIGN_OR_RETURN(out.model, zoo::load_model(folder));
  STRATA_ASSIGN_OR_RETURN(const auto inputs,
                          formats::SafetensorsFile::open(folder + "/inputs.safetensors"));
  STRATA_ASSIGN_OR_RETURN(out.batch.input_ids, read_tensor(inputs, "input_ids"));
  STRATA_ASSIGN_OR_RETURN(out.batch.labels, read_tensor(inputs, "labels"));
  STRATA_ASSIGN_OR_RETURN(out.batch.attention_mask, read_tensor(inputs, "attention_mask"));
  if (out.precision == "32") {
    STRATA_ASSIGN_OR_RETURN(out.expected,
                            formats::SafetensorsFile::open(folder + "/expected.safetensors"));
    STRATA_ASSIGN_OR_RETURN(out.final_weights,
                            formats::SafetensorsFile::open(folder + "/train_final.safetensors"));
  }
  STRATA_ASSIGN_OR_RETURN(out.steps, read_lines(folder + "/train.jsonl"));
  if (std::filesystem::exists(folder + "/generation.jsonl")) {
    STRATA_ASSIGN_OR_RETURN(out.generations, read_lines(folder + "/generation.jsonl"));
  }
  STRATA_ASSIGN_OR_RETURN(const Json config, formats::read_json(folder + "/config.json"));
  STRATA_ASSIGN_OR_RETURN(out.end_token, formats::get_int_or(config, "eos_token_id", -1, folder));
  return out;
}

std::vector<zoo::Batch> Case::part_of(int rank, int ranks) const {
  const int64_t rows = batch.input_ids.size(0);
  const int64_t micro_batches = description["batch"].value("micro_batches", int64_t{1});
  std::vector<zoo::Batch> out;
  if (micro_batches == 1) {
    const int64_t first = rows * rank / ranks;
    const int64_t last = rows * (rank + 1) / ranks;
    out.push_back(last > first ? rows_of(batch, first, last - first) : without_labels(batch));
    return out;
  }
  const int64_t each = rows / micro_batches;
  for (int64_t round = 0; round * ranks < micro_batches; ++round) {
    const int64_t micro = round * ranks + rank;
    out.push_back(micro < micro_batches ? rows_of(batch, micro * each, each)
                                        : without_labels(batch));
  }
  return out;
}

// ---- errors ----

void Errors::add(const std::string& name, double error) {
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  for (auto& [known, largest] : largest_) {
    if (known == name) {
      largest = std::max(largest, error);
      return;
    }
  }
  largest_.emplace_back(name, error);
}

at::Tensor Errors::counted_entries(const std::string& parameter,
                                   const at::Tensor& difference) const {
  at::Tensor counts = at::ones({difference.numel()}, at::kBool);
  const Json& entries = case_.description["zero_gradient_entries"]["entries"];
  if (entries.contains(parameter)) {
    for (const Json& range : entries[parameter]) {
      counts.slice(0, range[0].get<int64_t>(), range[1].get<int64_t>()).fill_(false);
    }
  }
  return difference.reshape({-1}).masked_select(counts);
}

Status Errors::add_weight(const std::string& parameter, const at::Tensor& found) {
  STRATA_ASSIGN_OR_RETURN(const at::Tensor expected, read_tensor(*case_.final_weights, parameter));
  const at::Tensor errors = counted_entries(parameter, (found - expected).abs());
  if (errors.numel() > 0) add("final_weights", errors.max().item<double>());
  weight_errors_.push_back(errors);
  return {};
}

Status Errors::add_gradient(const std::string& parameter, const at::Tensor& found) {
  STRATA_ASSIGN_OR_RETURN(const at::Tensor expected,
                          read_tensor(*case_.expected, "grad." + parameter));
  add("gradients", (found - expected).abs().max().item<double>());
  return {};
}

void Errors::add_999_in_1000() {
  if (weight_errors_.empty()) return;
  const at::Tensor all = std::get<0>(at::cat(weight_errors_).sort());
  add("final_weights_999_in_1000", all[(all.numel() * 999 + 999) / 1000 - 1].item<double>());
}

double Errors::limit_of(const std::string& name) const {
  static const std::vector<std::pair<std::string, std::string>> kLimits = {
      {"logits", "logits_abs"},
      {"loss", "loss_abs"},
      {"gradients", "grad_abs"},
      {"loss_curve", "train_loss_rel"},
      {"loss_curve_abs", "train_loss_abs"},
      {"norm_curve", "train_grad_norm_rel"},
      {"final_weights", "final_weight_abs_of_any"},
      {"final_weights_999_in_1000", "final_weight_abs_of_999_in_1000"}};
  for (const auto& [known, limit] : kLimits) {
    if (known == name) return case_.tolerance(limit);
  }
  return 0;  // exact
}

Json Errors::to_json() {
  add_999_in_1000();
  Json out = Json::object();
  for (const auto& [name, error] : largest_) out[name] = error;
  return out;
}

bool Errors::is_within() {
  add_999_in_1000();
  return std::all_of(largest_.begin(), largest_.end(),
                     [&](const auto& error) { return error.second <= limit_of(error.first); });
}

}  // namespace strata::parity
