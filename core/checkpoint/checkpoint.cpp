#include "strata/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "strata/formats/file.h"
#include "strata/formats/json.h"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFormat = "strata.checkpoint/1";
constexpr const char* kPrefix = "checkpoint-";
constexpr int64_t kMostRanks = 1 << 20;

std::string rank_file(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

Json describe(const model::UnitSpec& unit, const model::FlatLayout& layout) {
  Json parameters = Json::array();
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    parameters.push_back({{"name", unit.parameters[i].name},
                          {"shape", unit.parameters[i].shape},
                          {"offset", layout.offsets[i]}});
  }
  return {{"name", unit.name}, {"numel", layout.numel}, {"parameters", std::move(parameters)}};
}

// Step of a complete checkpoint's folder name, or -1.
int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const std::string digits = name.substr(std::min(name.size(), std::strlen(kPrefix)));
  if (!name.starts_with(kPrefix) || digits.empty() || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return -1;
  }
  return std::stoll(digits);
}

Status point_latest_to(const std::string& output_dir, int64_t step) {
  const fs::path link = fs::path(output_dir) / "latest";
  const fs::path fresh = fs::path(output_dir) / ".latest.new";
  std::error_code error;
  fs::remove(fresh, error);
  error.clear();
  fs::create_directory_symlink(fs::path(folder_of(output_dir, step)).filename(), fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (!error) {
    formats::sync_folder(output_dir);
    return {};
  }
  return io_error(fmt::format("checkpoint: cannot point '{}' to step {}: {}", link.string(), step,
                              error.message()));
}

// Keeps the newest `keep` up to this step; later ones are of another run in the same folder.
void remove_old(const std::string& output_dir, int64_t last_step, int keep) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    const int64_t step = step_of(entry.path());
    if (step >= 0 && step <= last_step && entry.is_directory(error)) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  for (size_t i = static_cast<size_t>(keep); i < steps.size(); ++i) {
    fs::remove_all(folder_of(output_dir, steps[i]), error);
  }
}

// Renames `part` to `folder`. What stood there, an earlier run's checkpoint of the same step, is
// called `part` then: at no moment is neither of them there.
Status put_in_place(const std::string& part, const std::string& folder) {
  int failed = ::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, folder.c_str(), RENAME_NOREPLACE);
  if (failed != 0 && errno == EEXIST) {
    failed = ::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE);
  }
  std::error_code error;
  if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) {
    // This file system can do neither at once.
    fs::remove_all(folder, error);
    fs::rename(part, folder, error);
  } else if (failed != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return {};
  return io_error(
      fmt::format("checkpoint: cannot rename '{}' to '{}': {}. HINT: check the disk and the mode "
                  "of the folder",
                  part, folder, error.message()));
}

// "UNIT@OFFSET/KIND" in its parts; false if it is not of that form.
bool parse_tensor_name(const std::string& name, std::string* unit, int64_t* offset,
                       std::string* kind) {
  const size_t slash = name.rfind('/');
  const size_t at = name.rfind('@', slash);
  if (slash == std::string::npos || at == std::string::npos) return false;
  const std::string digits = name.substr(at + 1, slash - at - 1);
  if (digits.empty() || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return false;
  }
  *unit = name.substr(0, at);
  *offset = std::stoll(digits);
  *kind = name.substr(slash + 1);
  return true;
}

}  // namespace

std::string folder_of(const std::string& output_dir, int64_t step) {
  return (fs::path(output_dir) / (kPrefix + std::to_string(step))).string();
}

std::string part_folder_of(const std::string& output_dir, int64_t step) {
  return folder_of(output_dir, step) + ".part";
}

Status write_rank_file(const std::string& folder, int rank, const std::vector<OwnedSlice>& slices) {
  std::vector<formats::TensorSpec> specs;
  for (const OwnedSlice& slice : slices) {
    specs.push_back({fmt::format("{}@{}/{}", slice.unit, slice.offset, slice.kind),
                     formats::DType::kF32,
                     {slice.numel}});
  }
  const std::string path = (fs::path(folder) / rank_file(rank)).string();
  STRATA_ASSIGN_OR_RETURN(auto writer, formats::SafetensorsWriter::create(path, specs));
  for (size_t i = 0; i < slices.size(); ++i) {
    const std::span<const float> values(slices[i].data, static_cast<size_t>(slices[i].numel));
    STRATA_RETURN_IF_ERROR(writer.write(specs[i].name, std::as_bytes(values)));
  }
  return writer.finish();
}

Status commit(const std::string& output_dir, int64_t step, int world_size,
              const model::ModelSpec& spec, const std::vector<model::FlatLayout>& layouts,
              const Json& state, int keep) {
  Json units = Json::array();
  for (size_t u = 0; u < spec.units.size(); ++u) {
    units.push_back(describe(spec.units[u], layouts[u]));
  }
  const Json manifest = {{"format", kFormat},
                         {"step", step},
                         {"world_size", world_size},
                         {"units", std::move(units)},
                         {"state", state}};
  const std::string part = part_folder_of(output_dir, step);
  STRATA_RETURN_IF_ERROR(
      formats::write_json((fs::path(part) / "manifest.json").string(), manifest, -1));
  const std::string folder = folder_of(output_dir, step);
  STRATA_RETURN_IF_ERROR(put_in_place(part, folder));
  formats::sync_folder(output_dir);
  STRATA_RETURN_IF_ERROR(point_latest_to(output_dir, step));
  discard(output_dir, step);  // what stood in its place
  if (keep > 0) remove_old(output_dir, step, keep);
  return {};
}

void discard(const std::string& output_dir, int64_t step) {
  std::error_code error;
  fs::remove_all(part_folder_of(output_dir, step), error);
}

void discard_unfinished(const std::string& output_dir) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    if (entry.path().extension() == ".part" && step_of(entry.path().stem()) >= 0) {
      unfinished.push_back(entry.path());
    }
  }
  for (const fs::path& part : unfinished) fs::remove_all(part, error);
}

// ---- Reader ----

Result<Reader> Reader::open(const std::string& folder) {
  Reader reader;
  std::error_code error;
  const fs::path resolved = fs::canonical(folder, error);
  if (error) {
    return not_found(fmt::format(
        "checkpoint: '{}': {}. HINT: give a folder with manifest.json, or OUTPUT_DIR/latest",
        folder, error.message()));
  }
  reader.folder_ = resolved.string();
  STRATA_RETURN_IF_ERROR(reader.read_manifest());
  STRATA_RETURN_IF_ERROR(reader.index_files());
  return reader;
}

Status Reader::read_manifest() {
  const std::string path = (fs::path(folder_) / "manifest.json").string();
  if (!fs::exists(path)) {
    return not_found(
        fmt::format("checkpoint: '{}' has no manifest.json, so it is not a complete "
                    "checkpoint. HINT: use OUTPUT_DIR/latest",
                    folder_));
  }
  STRATA_ASSIGN_OR_RETURN(manifest_, formats::read_json(path));
  STRATA_ASSIGN_OR_RETURN(const std::string format, formats::get_string(manifest_, "format", path));
  if (format != kFormat) {
    return unsupported(
        fmt::format("{}: format '{}', this version reads '{}'. HINT: use the version that wrote it",
                    path, format, kFormat));
  }
  STRATA_ASSIGN_OR_RETURN(step_, formats::get_int(manifest_, "step", path));
  STRATA_ASSIGN_OR_RETURN(const int64_t world, formats::get_int(manifest_, "world_size", path));
  if (step_ < 0 || world < 1 || world > kMostRanks) {
    return invalid_argument(
        fmt::format("{}: step {}, world_size {}. HINT: the file is damaged; use another checkpoint",
                    path, step_, world));
  }
  world_size_ = static_cast<int>(world);
  if (!manifest_.contains("units") || !manifest_["units"].is_array()) {
    return invalid_argument(fmt::format(
        "{}: 'units' is missing. HINT: the file is damaged; use another checkpoint", path));
  }
  for (const Json& unit : manifest_["units"]) {
    STRATA_ASSIGN_OR_RETURN(const std::string name,
                            formats::get_string(unit, "name", path + ": units"));
    STRATA_ASSIGN_OR_RETURN(numel_[name], formats::get_int(unit, "numel", path + ": units"));
  }
  state_ = manifest_.value("state", Json::object());
  return {};
}

Status Reader::index_files() {
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::string path = (fs::path(folder_) / rank_file(rank)).string();
    STRATA_ASSIGN_OR_RETURN(auto file, formats::SafetensorsFile::open(path));
    files_.push_back(std::make_shared<formats::SafetensorsFile>(std::move(file)));
    for (const formats::TensorInfo& tensor : files_.back()->tensors()) {
      std::string unit;
      std::string kind;
      Piece piece{0, tensor.numel, files_.size() - 1, tensor.name};
      if (!parse_tensor_name(tensor.name, &unit, &piece.offset, &kind) ||
          tensor.dtype != formats::DType::kF32) {
        return invalid_argument(
            fmt::format("{}: tensor '{}' {} is not an fp32 slice named UNIT@OFFSET/KIND. HINT: the "
                        "file is damaged; use another checkpoint",
                        path, tensor.name, formats::describe(tensor)));
      }
      pieces_[unit][kind].push_back(std::move(piece));
    }
  }
  for (auto& [unit, kinds] : pieces_) {
    for (auto& [kind, pieces] : kinds) {
      std::sort(pieces.begin(), pieces.end(),
                [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
    }
  }
  return {};
}

Status Reader::check_model(const model::ModelSpec& spec,
                           const std::vector<model::FlatLayout>& layouts) const {
  const Json& units = manifest_["units"];
  if (units.size() != spec.units.size()) {
    return invalid_argument(fmt::format(
        "checkpoint: '{}' has {} units, the model has {}. HINT: use the model that wrote it",
        folder_, units.size(), spec.units.size()));
  }
  for (size_t u = 0; u < spec.units.size(); ++u) {
    // Padding at a unit's end depends on the world size; all else must be equal.
    const Json wanted = describe(spec.units[u], layouts[u]);
    if (units[u].value("name", "") == spec.units[u].name &&
        units[u].value("parameters", Json()) == wanted["parameters"]) {
      continue;
    }
    return invalid_argument(
        fmt::format("checkpoint: unit {} of '{}' is {}, the model's is {}. HINT: use the model "
                    "that wrote it",
                    u, folder_, units[u].dump(), wanted.dump()));
  }
  return {};
}

bool Reader::has_kind(const std::string& unit, const std::string& kind) const {
  const auto found = pieces_.find(unit);
  return found != pieces_.end() && found->second.contains(kind);
}

Status Reader::read(const std::string& unit, const std::string& kind, int64_t offset, int64_t numel,
                    float* out) const {
  if (!has_kind(unit, kind)) {
    return not_found(
        fmt::format("checkpoint: '{}' has no '{}' of unit '{}'. HINT: is a rank's file missing?",
                    folder_, kind, unit));
  }
  const std::vector<Piece>& pieces = pieces_.at(unit).at(kind);
  const int64_t end = offset + numel;
  int64_t done = offset;
  for (const Piece& piece : pieces) {
    const int64_t piece_end = piece.offset + piece.numel;
    if (piece_end <= done || piece.offset >= end) continue;
    if (piece.offset > done) break;  // a gap
    const int64_t until = std::min(end, piece_end);
    const std::span<float> part(out + (done - offset), static_cast<size_t>(until - done));
    STRATA_RETURN_IF_ERROR(
        files_[piece.file]->read(piece.tensor, done - piece.offset, std::as_writable_bytes(part)));
    done = until;
  }
  const auto numel_of_unit = numel_.find(unit);
  const int64_t saved_end = numel_of_unit == numel_.end() ? end : numel_of_unit->second;
  if (done < std::min(end, saved_end)) {
    return invalid_argument(
        fmt::format("checkpoint: '{}' lacks elements from {} of '{}' of unit '{}'. HINT: is a "
                    "rank's file missing?",
                    folder_, done, kind, unit));
  }
  std::fill(out + (done - offset), out + numel, 0.0F);  // padding of another world size
  return {};
}

}  // namespace strata::checkpoint
