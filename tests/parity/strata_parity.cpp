// strata_parity DIR [--strategy S] [--devices N] [--precision P] [--check-plugin]: runs a folder of
// reference values through launcher, store, plugin, session, optimizer and generation. Cases in 16
// bits have losses alone; their precision is the case's unless given.
//
// Prints one JSON line with the largest errors. Exit code 0: all are within the tolerances of
// case.json; 1: one is not, or the run failed; 2: the request cannot be met.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/strata/ranks.h"
#include "strata/checkpoint/checkpoint.h"
#include "strata/strategy/session.h"
#include "strata/train/optimization.h"
#include "strata/train/precision.h"
#include "strata/train/saving.h"
#include "strata/train/stepper.h"
#include "strata/zoo/generate.h"
#include "tests/parity/parity_case.h"

namespace strata::parity {
namespace {

using formats::Json;
namespace fs = std::filesystem;

// A folder that all ranks use, gone in the end.
class SharedFolder {
 public:
  static Result<SharedFolder> make(const train::Rank& rank, double timeout_s) {
    SharedFolder folder;
    if (rank.is_first()) {
      std::string name = (fs::temp_directory_path() / "strata_parity_XXXXXX").string();
      if (mkdtemp(name.data()) == nullptr) return io_error("parity: no temporary folder");
      folder.path_ = name;
      folder.is_owner_ = true;
      if (rank.store) STRATA_RETURN_IF_ERROR(rank.store->set("parity/folder", name));
      return folder;
    }
    STRATA_ASSIGN_OR_RETURN(
        folder.path_,
        rank.store->get("parity/folder", std::chrono::milliseconds(int64_t(timeout_s * 1000))));
    return folder;
  }
  SharedFolder(SharedFolder&& other) noexcept
      : path_(std::move(other.path_)), is_owner_(std::exchange(other.is_owner_, false)) {}
  ~SharedFolder() {
    std::error_code error;
    if (is_owner_) fs::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  SharedFolder() = default;
  std::string path_;
  bool is_owner_ = false;
};

class Run {
 public:
  Run(const std::string& folder, const std::string& precision,
      const config::PlacementConfig& placement, const train::Rank& rank)
      : folder_(folder), precision_name_(precision), placement_(placement), rank_(rank) {}

  int operator()() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    at::set_num_threads(1);
    const Status loaded = train::agree(rank_, "load", load(), placement_.timeout_s);
    if (!loaded.ok()) return apps::exit_code_of(loaded, false);
    errors_.emplace(*case_);
    const Status done = run();
    if (!done.ok()) {
      if (session_) session_->abort(done.message());
      return apps::exit_code_of(done, true);
    }
    const bool is_within = errors_->is_within();
    if (rank_.is_first()) {
      const Json line = {{"case", case_->description["name"]},
                         {"strategy", placement_.strategy},
                         {"devices", rank_.world.size},
                         {"precision", precision_.name},
                         {"is_within", is_within},
                         {"errors", errors_->to_json()},
                         {"tolerance", case_->description["tolerance"]}};
      std::puts(line.dump().c_str());
    }
    return is_within ? apps::kExitDone : apps::kExitFailed;
  }

 private:
  Status load() {
    STRATA_ASSIGN_OR_RETURN(case_, Case::load(folder_));
    precision_ =
        train::make_precision(precision_name_.empty() ? case_->precision : precision_name_);
    if (precision_.name != case_->precision && case_->expected) {
      return unsupported("parity: --precision " + precision_.name +
                         " needs a case in 16 bits. HINT: gpt2-bf16-mixed");
    }
    plugin::StrategyNeeds needs;
    needs.world_size = static_cast<uint32_t>(rank_.world.size);
    needs.accumulates = case_->part_of(0, rank_.world.size).size() > 1;
    needs.has_tied_units = case_->model->spec().order.size() > case_->model->spec().units.size();
    needs.infers = true;
    needs.needs_equal_replicas = true;
    needs.compute_dtype = precision_.units.compute;
    needs.reduce_dtype = precision_.units.reduce;
    needs.accumulate_dtype = precision_.units.accumulate;
    STRATA_ASSIGN_OR_RETURN(strategy_, train::resolve_strategy(placement_, needs));
    return {};
  }

  Status run() {
    STRATA_RETURN_IF_ERROR(attach());
    STRATA_RETURN_IF_ERROR(fill("model.safetensors"));
    if (case_->expected) {
      STRATA_RETURN_IF_ERROR(compare_logits());
      STRATA_RETURN_IF_ERROR(compare_gradients());
    }
    STRATA_RETURN_IF_ERROR(compare_training());
    for (const Json& expected : case_->generations) {
      STRATA_RETURN_IF_ERROR(compare_generation(expected));
    }
    return session_->detach();
  }

  Status attach() {
    STRATA_ASSIGN_OR_RETURN(host_, train::make_host(rank_, placement_));
    STRATA_ASSIGN_OR_RETURN(
        plugin::StrategyInstance instance,
        plugin::StrategyInstance::create(*strategy_, rank_.world, {STRATA_DEVICE_CPU, 0},
                                         host_->abi(), placement_.check_plugin));
    STRATA_ASSIGN_OR_RETURN(
        session_,
        strategy::Session::attach(std::move(instance), *host_,
                                  train::with_dtypes(case_->model->spec(), precision_.units)));
    case_->model->bind_units(session_->units());
    return {};
  }

  Status fill(const std::string& file) {
    return train::initialize_weights(*session_, *case_->model, case_->folder + "/" + file, 0);
  }

  Status compare_logits() {
    STRATA_ASSIGN_OR_RETURN(const at::Tensor expected, read_tensor(*case_->expected, "logits"));
    at::Tensor found;
    STRATA_RETURN_IF_ERROR(session_->infer(
        [&](hooks::UnitRunner& runner) { found = case_->model->logits(case_->batch, runner); }));
    errors_->add("logits", (found - expected).abs().max().item<double>());
    return {};
  }

  // Loss and gradients of the whole batch, as the strategy holds them in its partitions.
  Status compare_gradients() {
    const std::vector<zoo::Batch> batches = case_->part_of(rank_.world.rank, rank_.world.size);
    double loss_sum = 0;
    int64_t tokens = 0;
    for (size_t i = 0; i < batches.size(); ++i) {
      const auto forward = [&](hooks::UnitRunner& runner) {
        const zoo::LossOutput out = case_->model->forward_loss(batches[i], runner);
        loss_sum += out.loss_sum.item<double>();
        tokens += out.label_tokens;
        return out.loss_sum;
      };
      STRATA_RETURN_IF_ERROR(
          session_->train_micro_batch(static_cast<int>(i), i + 1 == batches.size(), forward));
    }
    STRATA_RETURN_IF_ERROR(session_->all_reduce(std::span<double>(&loss_sum, 1)));
    STRATA_RETURN_IF_ERROR(session_->all_reduce(std::span<int64_t>(&tokens, 1)));
    STRATA_ASSIGN_OR_RETURN(const at::Tensor expected, read_tensor(*case_->expected, "loss"));
    errors_->add("loss",
                 std::abs(loss_sum / static_cast<double>(tokens) - expected.item<double>()));
    STRATA_RETURN_IF_ERROR(session_->before_step());
    STRATA_ASSIGN_OR_RETURN(const SharedFolder folder,
                            SharedFolder::make(rank_, placement_.timeout_s));
    STRATA_RETURN_IF_ERROR(share_gradients(folder.path()));
    const Status read = read_gradients(folder.path(), static_cast<double>(tokens));
    // Nobody takes the folder away before all have read it.
    STRATA_RETURN_IF_ERROR(train::agree(rank_, "gradients read", read, placement_.timeout_s));
    return session_->after_step(false);
  }

  std::vector<model::FlatLayout> layouts() const {
    std::vector<model::FlatLayout> out;
    for (const model::UnitStorage* unit : session_->units()) out.push_back(unit->layout());
    return out;
  }

  Status share_gradients(const std::string& folder) {
    std::vector<checkpoint::OwnedSlice> slices;
    for (const model::Partition& p : session_->partitions()) {
      if (p.replica != 0 || p.numel == 0) continue;
      if (p.gradient_ready != nullptr) {
        STRATA_RETURN_IF_ERROR(
            host_->wait(host_->compute_stream(), static_cast<strata_event_t>(p.gradient_ready)));
      }
      slices.push_back({case_->model->spec().units[static_cast<size_t>(p.unit)].name, p.offset,
                        p.numel, "gradient", static_cast<const float*>(p.gradient)});
    }
    const std::string part = checkpoint::part_folder_of(folder, 1);
    Status made;
    if (rank_.is_first()) {
      std::error_code error;
      fs::create_directories(part, error);
      if (error) made = io_error("parity: " + error.message());
    }
    STRATA_RETURN_IF_ERROR(train::agree(rank_, "gradient folder", made, placement_.timeout_s));
    STRATA_RETURN_IF_ERROR(train::agree(rank_, "gradients",
                                        checkpoint::write_rank_file(part, rank_.world.rank, slices),
                                        placement_.timeout_s));
    Status committed;
    if (rank_.is_first()) {
      committed = checkpoint::commit(folder, 1, rank_.world.size, case_->model->spec(), layouts(),
                                     Json::object(), 0);
    }
    return train::agree(rank_, "gradients committed", committed, placement_.timeout_s);
  }

  Status read_gradients(const std::string& folder, double tokens) {
    STRATA_ASSIGN_OR_RETURN(const auto reader,
                            checkpoint::Reader::open(checkpoint::folder_of(folder, 1)));
    for (const model::UnitStorage* unit : session_->units()) {
      const std::vector<model::ParameterSpec>& parameters = unit->spec().parameters;
      for (size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor found = at::empty(parameters[i].shape, at::kFloat);
        STRATA_RETURN_IF_ERROR(reader.read(unit->spec().name, "gradient", unit->layout().offsets[i],
                                           found.numel(), found.mutable_data_ptr<float>()));
        STRATA_RETURN_IF_ERROR(errors_->add_gradient(parameters[i].name, found / tokens));
      }
    }
    return {};
  }

  Status compare_training() {
    const Json& training = case_->training();
    config::OptimizerConfig config;
    config.learning_rate = training.at("learning_rate");
    config.weight_decay = training.at("decoupled_weight_decay");
    config.adam_beta1 = training.at("betas").at(0);
    config.adam_beta2 = training.at("betas").at(1);
    config.adam_epsilon = training.at("eps");
    config.warmup_steps = training.at("schedule").at("warmup_steps");
    config.lr_scheduler_type = "cosine";
    const optim::Schedule schedule =
        train::make_schedule(config, training.at("schedule").at("total_steps"));
    STRATA_ASSIGN_OR_RETURN(const auto optimizer, train::make_optimizer(config, *session_, *host_));
    train::StepperOptions options;
    options.clipping.max_norm = training.at("max_grad_norm");
    std::optional<optim::LossScale> loss_scale;
    if (precision_.dynamic_loss_scale) {
      // Small enough that no step is skipped: losses are compared step by step.
      precision_.dynamic_loss_scale->init_scale = 1024;
      options.loss_scale = &loss_scale.emplace(*precision_.dynamic_loss_scale);
      options.micro_batch_tokens = case_->batch.labels.numel();
    }
    train::Stepper stepper(*session_, *host_, *case_->model, *optimizer, options);
    const std::vector<zoo::Batch> batches = case_->part_of(rank_.world.rank, rank_.world.size);
    for (size_t k = 0; k < case_->steps.size(); ++k) {
      const Json& expected = case_->steps[k];
      const double lr = optim::learning_rate(schedule, static_cast<int64_t>(k));
      STRATA_ASSIGN_OR_RETURN(const train::StepResult found, stepper.step(batches, lr));
      if (case_->expected) {
        add_relative("loss_curve", found.loss, expected.at("loss"));
        add_relative("norm_curve", found.grad_norm, expected.at("grad_norm"));
      } else {
        errors_->add("loss_curve_abs", std::abs(found.loss - double(expected.at("loss"))));
        errors_->add("skipped_steps", found.is_skipped ? 1 : 0);
      }
      const double expected_lr = expected.at("lr");
      errors_->add("learning_rates_wrong", std::abs(lr - expected_lr) > 1e-9 * expected_lr ? 1 : 0);
    }
    if (!case_->final_weights) return {};
    return session_->read_units([&](int unit, std::span<const at::Tensor> parameters) -> Status {
      const model::UnitSpec& spec = case_->model->spec().units[static_cast<size_t>(unit)];
      for (size_t i = 0; i < parameters.size(); ++i) {
        STRATA_RETURN_IF_ERROR(errors_->add_weight(spec.parameters[i].name, parameters[i]));
      }
      return {};
    });
  }

  void add_relative(const std::string& name, double found, double expected) {
    errors_->add(name, std::abs(found - expected) / std::abs(expected));
  }

  Status compare_generation(const Json& expected) {
    if (expected.at("kind") != "greedy") {
      return unsupported("parity: generation of kind " + expected.at("kind").dump());
    }
    const auto rows = [](const Json& json) {
      std::vector<at::Tensor> out;
      for (const Json& row : json) out.push_back(at::tensor(row.get<std::vector<int64_t>>()));
      return at::stack(out);
    };
    STRATA_RETURN_IF_ERROR(fill(expected.at("weights")));
    zoo::GenerateOptions options;
    options.greedy = true;
    options.max_new_tokens = expected.at("max_new_tokens");
    options.pad = expected.value("pad", int64_t{0});
    if (expected.at("stop").is_null()) {
      if (case_->end_token >= 0) options.banned = case_->end_token;
    } else {
      options.stop = expected.at("stop").get<int64_t>();
    }
    STRATA_ASSIGN_OR_RETURN(const at::Tensor found,
                            zoo::generate(*case_->model, rows(expected.at("input_ids")),
                                          rows(expected.at("attention_mask")), options,
                                          [&](const auto& body) { return session_->infer(body); }));
    const at::Tensor wanted = rows(expected.at("sequences"));
    const bool is_as_long = found.sizes() == wanted.sizes();
    errors_->add("generated_ids",
                 is_as_long ? found.ne(wanted).sum().item<double>() : double(wanted.numel()));
    return {};
  }

  std::string folder_;
  std::string precision_name_;  // "": the case's
  const config::PlacementConfig& placement_;
  const train::Rank& rank_;
  std::optional<Case> case_;
  train::Precision precision_;
  std::optional<plugin::ResolvedStrategy> strategy_;
  std::optional<Errors> errors_;
  std::unique_ptr<device::Host> host_;
  std::unique_ptr<strategy::Session> session_;
};

struct Arguments {
  std::string folder;
  std::string precision;
  config::PlacementConfig placement;
};

Result<Arguments> parse(const std::vector<std::string>& args) {
  Arguments out;
  out.placement.timeout_s = 60;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool has_value = i + 1 < args.size();
    if (args[i] == "--check-plugin") {
      out.placement.check_plugin = true;
    } else if (args[i] == "--strategy" && has_value) {
      out.placement.strategy = args[++i];
    } else if (args[i] == "--precision" && has_value) {
      out.precision = args[++i];
    } else if (args[i] == "--devices" && has_value) {
      out.placement.devices = std::atoi(args[++i].c_str());
      out.placement.devices_given = true;
    } else if (out.folder.empty() && !args[i].starts_with("--")) {
      out.folder = args[i];
    } else {
      return invalid_argument("parity: '" + args[i] + "' is not understood");
    }
  }
  if (out.folder.empty() || out.placement.devices < 1) {
    return invalid_argument(
        "parity: HINT: strata_parity DIR [--strategy S] [--devices N] [--precision P] "
        "[--check-plugin]");
  }
  return out;
}

}  // namespace
}  // namespace strata::parity

int main(int argc, char** argv) {
  using namespace strata;
  const auto arguments = parity::parse(std::vector<std::string>(argv + 1, argv + argc));
  if (!arguments.ok()) return apps::exit_code_of(arguments.status(), false);
  return apps::run_on_ranks(arguments->placement, [&](const train::Rank& rank) {
    const auto placement = apps::with_strategy(arguments->placement, rank.world);
    return parity::Run(arguments->folder, arguments->precision, placement, rank)();
  });
}
