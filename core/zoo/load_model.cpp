#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "strata/formats/json.h"
#include "strata/zoo/gpt2.h"

namespace strata::zoo {
namespace {

Result<Gpt2Config> read_config(const std::string& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const std::string file = is_folder ? path + "/config.json" : path;
  STRATA_ASSIGN_OR_RETURN(const nlohmann::json config, formats::read_json(file));
  if (!config.is_object()) {
    return invalid_argument(fmt::format("{}: not a JSON object. HINT: a config.json", file));
  }
  STRATA_ASSIGN_OR_RETURN(const std::string type,
                          formats::get_string_or(config, "model_type", "", file));
  if (type != "gpt2") {
    return unsupported(fmt::format("{}: model_type '{}'. HINT: supported is 'gpt2'", file, type));
  }
  return parse_gpt2_config(config, file);
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(Gpt2Config parsed, read_config(path));
  return std::unique_ptr<Model>(std::make_unique<Gpt2>(std::move(parsed)));
}

Status check_same_model(const std::string& checkpoint, const std::string& model) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(checkpoint, error);
  if (is_folder && !std::filesystem::exists(checkpoint + "/config.json", error)) return {};
  STRATA_ASSIGN_OR_RETURN(const Gpt2Config saved, read_config(checkpoint));
  STRATA_ASSIGN_OR_RETURN(const Gpt2Config asked, read_config(model));
  const std::string differing = difference(saved, asked);
  if (differing.empty()) return {};
  return invalid_argument(fmt::format(
      "checkpoint: '{}' is of another model than '{}': {}. HINT: use the model that wrote it",
      checkpoint, model, differing));
}

}  // namespace strata::zoo
