// strata export: a checkpoint as a folder that Hugging Face's libraries open. One process, no
// strategy: slices are read by unit.
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "apps/strata/command.h"
#include "strata/checkpoint/checkpoint.h"
#include "strata/data/tokenizer.h"
#include "strata/train/saving.h"
#include "strata/zoo/model.h"
#include "strata/zoo/weights.h"

namespace strata::apps {
namespace {

namespace fs = std::filesystem;

Status make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return {};
  return io_error(
      fmt::format("export: cannot make --output-dir '{}': {}. HINT: a folder that can be written",
                  folder, error.message()));
}

Status export_checkpoint(const config::ExportConfig& config) {
  STRATA_ASSIGN_OR_RETURN(const checkpoint::Reader reader,
                          checkpoint::Reader::open(config.checkpoint));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<zoo::Model> model,
                          zoo::load_model(reader.folder()));
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<data::Tokenizer> tokenizer,
                          data::load_tokenizer(reader.folder()));
  const std::vector<model::UnitSpec>& units = model->spec().units;
  std::vector<model::FlatLayout> layouts;
  for (const model::UnitSpec& unit : units) {
    layouts.push_back(model::make_flat_layout(unit, 64, 64));
  }
  STRATA_RETURN_IF_ERROR(reader.check_model(model->spec(), layouts));
  const zoo::UnitReader read_units = [&](const auto& visit) -> Status {
    for (size_t u = 0; u < units.size(); ++u) {
      std::vector<at::Tensor> parameters;
      for (size_t i = 0; i < units[u].parameters.size(); ++i) {
        parameters.push_back(at::zeros(units[u].parameters[i].shape, at::kFloat));
        STRATA_RETURN_IF_ERROR(reader.read(units[u].name, "master", layouts[u].offsets[i],
                                           parameters[i].numel(),
                                           parameters[i].mutable_data_ptr<float>()));
      }
      STRATA_RETURN_IF_ERROR(visit(static_cast<int>(u), parameters));
    }
    return {};
  };
  STRATA_RETURN_IF_ERROR(make_folder(config.output_dir));
  STRATA_RETURN_IF_ERROR(zoo::write_weights(config.output_dir, *model, read_units, true));
  return train::write_companions(config.output_dir, *model, *tokenizer);
}

}  // namespace

int run(const config::ExportConfig& config) {
  const Status status = export_checkpoint(config);
  if (status.ok()) std::fputs(fmt::format("written to {}\n", config.output_dir).c_str(), stdout);
  return exit_code_of(status, false);
}

}  // namespace strata::apps
