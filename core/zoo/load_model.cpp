#include <fmt/format.h>

#include <filesystem>

#include "strata/formats/json.h"
#include "strata/zoo/gpt2.h"

namespace strata::zoo {

Result<std::unique_ptr<Model>> load_model(const std::string& path) {
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
  STRATA_ASSIGN_OR_RETURN(Gpt2Config parsed, parse_gpt2_config(config, file));
  return std::unique_ptr<Model>(std::make_unique<Gpt2>(std::move(parsed)));
}

}  // namespace strata::zoo
