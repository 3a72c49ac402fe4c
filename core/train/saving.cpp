#include "strata/train/saving.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "strata/formats/hash.h"
#include "strata/formats/json.h"
#include "strata/optim/norm.h"
#include "strata/zoo/weights.h"

namespace strata::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<model::FlatLayout> layouts_of(const strategy::Session& session) {
  std::vector<model::FlatLayout> layouts;
  for (const model::UnitStorage* unit : session.units()) layouts.push_back(unit->layout());
  return layouts;
}

// The slices that this rank writes: of copies that several ranks hold, the first rank's.
std::vector<checkpoint::OwnedSlice> owned_slices(const strategy::Session& session,
                                                 const optim::Optimizer& optimizer,
                                                 const Rank& rank) {
  std::vector<checkpoint::OwnedSlice> slices;
  const auto unit_name = [&](int unit) {
    return session.spec().units[static_cast<size_t>(unit)].name;
  };
  for (const model::Partition& partition : session.partitions()) {
    if (partition.replica != 0 || partition.numel == 0) continue;
    slices.push_back(
        {unit_name(partition.unit), partition.offset, partition.numel, "master", partition.master});
  }
  for (const optim::StateTensor& state : optimizer.states()) {
    const bool is_mine = state.is_whole ? rank.is_first() : state.is_first_copy;
    if (!is_mine || state.numel == 0) continue;
    slices.push_back({unit_name(state.unit), state.offset, state.numel, state.kind, state.data});
  }
  return slices;
}

Status check_finite(const std::vector<checkpoint::OwnedSlice>& slices, int64_t step) {
  for (const checkpoint::OwnedSlice& slice : slices) {
    if (optim::all_are_finite(std::span(slice.data, static_cast<size_t>(slice.numel)))) continue;
    return internal_error(fmt::format(
        "checkpoint: '{}' of unit '{}' is not finite after step {}; nothing was saved. HINT: go on "
        "from an earlier checkpoint with a smaller --learning-rate",
        slice.kind, slice.unit, step));
  }
  return {};
}

// An optimizer may have other states with other options.
Status check_states(const checkpoint::Reader& reader, const strategy::Session& session,
                    const optim::Optimizer& optimizer) {
  for (const optim::StateTensor& state : optimizer.states()) {
    const std::string& unit = session.spec().units[static_cast<size_t>(state.unit)].name;
    if (reader.has_kind(unit, state.kind)) continue;
    return invalid_argument(
        fmt::format("checkpoint: '{}' has no '{}' of unit '{}', which {} keeps with these options. "
                    "HINT: the options of the run that wrote it, such as --momentum",
                    reader.folder(), state.kind, unit, optimizer.name()));
  }
  return {};
}

Status make_part_folder(const SavePoint& point) {
  checkpoint::discard(point.output_dir, point.step);  // of a run that was killed while saving
  std::error_code error;
  const std::string folder = checkpoint::part_folder_of(point.output_dir, point.step);
  fs::create_directories(folder, error);
  if (!error) return {};
  return io_error(fmt::format("checkpoint: cannot make '{}': {}", folder, error.message()));
}

Json loss_scale_json(const optim::LossScale& loss_scale) {
  const optim::LossScaleState& state = loss_scale.state();
  return {
      {"scale", state.scale}, {"good_steps", state.good_steps}, {"hysteresis", state.hysteresis}};
}

Status set_end_token(const std::string& path, int32_t id) {
  STRATA_ASSIGN_OR_RETURN(Json object, formats::read_json(path));
  if (object.is_object() && object.value("eos_token_id", Json()) == Json(id)) return {};
  object["eos_token_id"] = id;
  return formats::write_json(path, object);
}

}  // namespace

Status write_companions(const std::string& folder, const zoo::Model& model,
                        const data::Tokenizer& tokenizer) {
  STRATA_RETURN_IF_ERROR(model.save_config(folder));
  if (const std::optional<int32_t> end = tokenizer.end_id()) {
    for (const char* name : {"config.json", "generation_config.json"}) {
      STRATA_RETURN_IF_ERROR(set_end_token((fs::path(folder) / name).string(), *end));
    }
  }
  return tokenizer.save(folder);
}

void seed_step(uint64_t seed, int rank, int64_t step) {
  const std::string text = fmt::format("{} {} {}", seed, rank, step);
  formats::Hash64 hash;
  hash.update(text);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(hash.value());
}

Status initialize_weights(strategy::Session& session, zoo::Model& model, const std::string& weights,
                          uint64_t seed) {
  if (weights.empty()) {
    return session.write_units([&](int unit, std::span<const at::Tensor> parameters) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        model.initialize(unit, static_cast<int>(i), parameters[i], seed);
      }
      return Status();
    });
  }
  STRATA_ASSIGN_OR_RETURN(const zoo::WeightFiles files, zoo::WeightFiles::open(weights, model));
  return session.write_units([&](int unit, std::span<const at::Tensor> parameters) {
    return files.read_unit(unit, parameters);
  });
}

Status save_checkpoint(const SavePoint& point, const Rank& rank, double timeout_s,
                       strategy::Session& session, const optim::Optimizer& optimizer,
                       const Workload& workload) {
  const std::string what = fmt::format("save {} ", point.step);
  const std::vector<checkpoint::OwnedSlice> slices = owned_slices(session, optimizer, rank);
  STRATA_RETURN_IF_ERROR(
      agree(rank, what + "numbers", check_finite(slices, point.step), timeout_s));
  const Status made = rank.is_first() ? make_part_folder(point) : Status();
  STRATA_RETURN_IF_ERROR(agree(rank, what + "folder", made, timeout_s));
  const std::string folder = checkpoint::part_folder_of(point.output_dir, point.step);
  Status written = checkpoint::write_rank_file(folder, rank.world.rank, slices);
  if (written.ok() && rank.is_first()) {
    written = write_companions(folder, *workload.model, *workload.tokenizer);
  }
  written = agree(rank, what + "files", written, timeout_s);
  Status committed = written;
  if (rank.is_first() && written.ok()) {
    Json state = {{"sampler", workload.sampler->state()},
                  {"optimizer", {{"name", optimizer.name()}, {"step", optimizer.step_count()}}},
                  {"strategy", point.strategy}};
    if (point.loss_scale != nullptr) state["loss_scale"] = loss_scale_json(*point.loss_scale);
    committed = checkpoint::commit(point.output_dir, point.step, rank.world.size, session.spec(),
                                   layouts_of(session), state, point.keep);
  }
  if (rank.is_first() && !committed.ok()) checkpoint::discard(point.output_dir, point.step);
  return agree(rank, what + "commit", committed, timeout_s);
}

Status check_same_optimizer(const checkpoint::Reader& reader, const std::string& name) {
  const std::string where = reader.folder() + "/manifest.json: state";
  if (!reader.state().contains("optimizer")) {
    return invalid_argument(where +
                            " has no optimizer. HINT: the file is damaged; use another checkpoint");
  }
  STRATA_ASSIGN_OR_RETURN(const std::string wrote,
                          formats::get_string(reader.state()["optimizer"], "name", where));
  if (wrote == name) return {};
  return invalid_argument(fmt::format(
      "checkpoint: '{}' was written by optimizer '{}', this run has '{}'. HINT: --optim {}",
      reader.folder(), wrote, name, wrote));
}

Result<ResumePoint> restore(const checkpoint::Reader& reader, strategy::Session& session,
                            optim::Optimizer& optimizer, data::DistributedSampler& sampler) {
  const std::string where = reader.folder() + "/manifest.json: state";
  const Json& state = reader.state();
  if (!state.contains("sampler") || !state.contains("optimizer")) {
    return invalid_argument(where +
                            " has no sampler or no optimizer. HINT: the file is damaged; use "
                            "another checkpoint");
  }
  STRATA_RETURN_IF_ERROR(check_same_optimizer(reader, optimizer.name()));
  STRATA_RETURN_IF_ERROR(check_states(reader, session, optimizer));
  STRATA_RETURN_IF_ERROR(load_weights(reader, session));
  for (const optim::StateTensor& to : optimizer.states()) {
    const std::string& unit = session.spec().units[static_cast<size_t>(to.unit)].name;
    STRATA_RETURN_IF_ERROR(reader.read(unit, to.kind, to.offset, to.numel, to.data));
  }
  STRATA_ASSIGN_OR_RETURN(const int64_t updates,
                          formats::get_int(state["optimizer"], "step", where));
  if (updates < 0 || updates > reader.step()) {
    return invalid_argument(
        fmt::format("{}: {} updates of the optimizer after {} steps. HINT: the file is damaged; "
                    "use another checkpoint",
                    where, updates, reader.step()));
  }
  optimizer.set_step_count(updates);
  STRATA_RETURN_IF_ERROR(sampler.restore(state["sampler"]));
  return ResumePoint{reader.step()};
}

Status restore_loss_scale(const checkpoint::Reader& reader, optim::LossScale& loss_scale) {
  if (!reader.state().contains("loss_scale")) return {};
  const std::string where = reader.folder() + "/manifest.json: state: loss_scale";
  const Json& from = reader.state()["loss_scale"];
  optim::LossScaleState state;
  STRATA_ASSIGN_OR_RETURN(state.scale, formats::get_double(from, "scale", where));
  STRATA_ASSIGN_OR_RETURN(state.good_steps, formats::get_int(from, "good_steps", where));
  STRATA_ASSIGN_OR_RETURN(state.hysteresis, formats::get_int(from, "hysteresis", where));
  if (!(state.scale > 0) || !std::isfinite(static_cast<float>(state.scale)) ||
      state.good_steps < 0 || state.hysteresis < 1) {
    return invalid_argument(where + " has values that no loss scale has: " + from.dump());
  }
  loss_scale.restore(state);
  return {};
}

Status load_weights(const checkpoint::Reader& reader, strategy::Session& session) {
  STRATA_RETURN_IF_ERROR(reader.check_model(session.spec(), layouts_of(session)));
  const std::vector<model::UnitStorage*> units = session.units();
  return session.write_units([&](int unit, std::span<const at::Tensor> parameters) {
    const model::UnitStorage& storage = *units[static_cast<size_t>(unit)];
    for (size_t i = 0; i < parameters.size(); ++i) {
      STRATA_RETURN_IF_ERROR(reader.read(storage.spec().name, "master", storage.layout().offsets[i],
                                         parameters[i].numel(),
                                         parameters[i].mutable_data_ptr<float>()));
    }
    return Status();
  });
}

Result<std::string> weight_hash(strategy::Session& session) {
  std::map<std::string, std::pair<int, size_t>> by_name;  // name -> unit, index
  const std::vector<model::UnitSpec>& units = session.spec().units;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t i = 0; i < units[u].parameters.size(); ++i) {
      by_name[units[u].parameters[i].name] = {static_cast<int>(u), i};
    }
  }
  formats::Hash64 hash;
  // One unit is open at a time: it is opened once for each run of neighbours in name order.
  for (auto at = by_name.begin(); at != by_name.end();) {
    const int unit = at->second.first;
    std::vector<size_t> indices;
    for (; at != by_name.end() && at->second.first == unit; ++at) {
      indices.push_back(at->second.second);
    }
    const auto add = [&](int, std::span<const at::Tensor> parameters) {
      for (const size_t i : indices) {
        const std::span<const float> values(parameters[i].const_data_ptr<float>(),
                                            static_cast<size_t>(parameters[i].numel()));
        hash.update(std::as_bytes(values));
      }
      return Status();
    };
    STRATA_RETURN_IF_ERROR(session.read_unit(unit, add));
  }
  return hash.hex();
}

Result<std::vector<RankSummary>> gather_summaries(strategy::Session& session, const World& world,
                                                  const RankSummary& mine) {
  constexpr size_t kFields = 6;
  std::vector<int64_t> all(kFields * static_cast<size_t>(world.size), 0);
  const uint64_t fields[kFields] = {mine.param_bytes,     mine.grad_bytes,
                                    mine.optimizer_bytes, mine.gathered_peak_bytes,
                                    mine.peak_bytes,      mine.sent_bytes_per_step};
  std::copy(fields, fields + kFields, all.begin() + static_cast<int64_t>(kFields) * world.rank);
  STRATA_RETURN_IF_ERROR(session.all_reduce(std::span<int64_t>(all)));
  std::vector<RankSummary> out;
  for (size_t r = 0; r < all.size(); r += kFields) {
    const auto at = [&](size_t field) { return static_cast<uint64_t>(all[r + field]); };
    out.push_back({at(0), at(1), at(2), at(3), at(4), at(5)});
  }
  return out;
}

}  // namespace strata::train
