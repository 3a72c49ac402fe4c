#include "strata/plugin/strategy_instance.h"

#include <fmt/format.h>

#include <exception>
#include <utility>
#include <vector>

#include "strata/plugin/checked.h"

namespace strata::plugin {
namespace {

Status make_status(const std::string& strategy, const char* slot, strata_status_t status,
                   const std::string& text) {
  const bool is_known = status > STRATA_OK && status <= STRATA_E_INTERNAL;
  if (!is_known) {
    return internal_error(
        fmt::format("{}: {} returned status {}, which the contract does not "
                    "know; a bug of the plugin. Its text: '{}'",
                    strategy, slot, status, text));
  }
  const Code code = static_cast<Code>(status);
  if (text.empty()) {
    return {code, fmt::format("{}: {} failed ({}) and said no reason, which is a bug of the plugin",
                              strategy, slot, code_name(code))};
  }
  return {code, text};
}

// Create arguments over a World and options, with the memory behind their pointers.
struct CreateArgs {
  std::vector<strata_option_t> options;
  strata_world_t world{};
  strata_create_args_t args{};

  CreateArgs(const ResolvedStrategy& strategy, const World& from, strata_device_t device,
             strata_host_t* host) {
    for (const auto& [key, value] : strategy.options) {
      options.push_back({key.c_str(), value.c_str()});
    }
    world.struct_size = sizeof(world);
    world.rank = static_cast<uint32_t>(from.rank);
    world.size = static_cast<uint32_t>(from.size);
    world.local_rank = static_cast<uint32_t>(from.local_rank);
    world.local_size = static_cast<uint32_t>(from.local_size);
    world.node = static_cast<uint32_t>(from.node);
    world.node_count = static_cast<uint32_t>(from.node_count);
    args.struct_size = sizeof(args);
    args.option_count = static_cast<uint32_t>(options.size());
    args.name = strategy.name.c_str();
    args.options = options.data();
    args.world = &world;
    args.device = device;
    args.host = host;
  }
  CreateArgs(const CreateArgs&) = delete;
};

}  // namespace

StrategyInstance::StrategyInstance(std::shared_ptr<PluginLibrary> library, std::string name,
                                   const strata_strategy_1_t* table, strata_strategy_t* self)
    : library_(std::move(library)), name_(std::move(name)), table_(table), self_(self) {}

StrategyInstance::StrategyInstance(StrategyInstance&& other) noexcept
    : library_(std::move(other.library_)),
      name_(std::move(other.name_)),
      table_(other.table_),
      self_(std::exchange(other.self_, nullptr)) {}

StrategyInstance& StrategyInstance::operator=(StrategyInstance&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(name_, other.name_);
  std::swap(table_, other.table_);
  std::swap(self_, other.self_);
  return *this;
}

StrategyInstance::~StrategyInstance() {
  if (self_ != nullptr) table_->destroy(self_);
}

Result<StrategyInstance> StrategyInstance::create(const ResolvedStrategy& strategy,
                                                  const World& world, strata_device_t device,
                                                  strata_host_t* host, bool is_checked) {
  const strata_strategy_1_t* table = strategy.library->strategy_table();
  if (is_checked) {
    STRATA_ASSIGN_OR_RETURN(table, wrap_checked(table, strategy.library->offer()));
  }
  const CreateArgs create(strategy, world, device, host);
  strata_strategy_t* self = nullptr;
  ErrorSink& errors = strategy.library->errors();
  (void)errors.take();
  const strata_status_t status = table->create(&create.args, &self);
  if (status != STRATA_OK) return make_status(strategy.name, "create", status, errors.take());
  if (self == nullptr) {
    return internal_error(
        fmt::format("{}: create returned STRATA_OK and no instance, which is a "
                    "bug of the plugin",
                    strategy.name));
  }
  return StrategyInstance(strategy.library, strategy.name, table, self);
}

Result<strata_estimate_t> StrategyInstance::estimate(const ResolvedStrategy& strategy,
                                                     const World& world, strata_device_t device,
                                                     const strata_model_t& model) {
  const CreateArgs create(strategy, world, device, nullptr);
  strata_estimate_t out{};
  out.struct_size = sizeof(out);
  ErrorSink& errors = strategy.library->errors();
  (void)errors.take();
  const strata_status_t status =
      strategy.library->strategy_table()->estimate(&create.args, &model, &out);
  if (status != STRATA_OK) return make_status(strategy.name, "estimate", status, errors.take());
  return out;
}

Status StrategyInstance::to_status(strata_status_t status, const char* slot) const {
  if (status == STRATA_OK) [[likely]]
    return {};
  return make_status(name_, slot, status, library_->errors().take());
}

template <typename... Parameters, typename... Arguments>
Status StrategyInstance::call(const char* slot,
                              strata_status_t (*function)(strata_strategy_t*, Parameters...),
                              Arguments... arguments) {
  (void)library_->errors().take();
  return to_status(function(self_, arguments...), slot);
}

Status StrategyInstance::layout(const strata_unit_t& unit, strata_layout_t* out) {
  out->struct_size = sizeof(*out);
  return call("layout", table_->layout, &unit, out);
}

Status StrategyInstance::attach(const strata_model_t& model) {
  return call("attach", table_->attach, &model);
}

Status StrategyInstance::open_unit(uint32_t unit, int32_t intent, strata_unit_view_t* out) {
  out->struct_size = sizeof(*out);
  return call("open_unit", table_->open_unit, unit, intent, out);
}

Status StrategyInstance::close_unit(uint32_t unit) {
  return call("close_unit", table_->close_unit, unit);
}

Status StrategyInstance::before_forward(const strata_unit_context_t& context,
                                        strata_unit_view_t* out) {
  out->struct_size = sizeof(*out);
  return call("before_forward", table_->before_forward, &context, out);
}

Status StrategyInstance::after_forward(const strata_unit_context_t& context, int32_t* residency) {
  return call("after_forward", table_->after_forward, &context, residency);
}

Status StrategyInstance::before_backward(const strata_unit_context_t& context,
                                         strata_unit_view_t* out) {
  out->struct_size = sizeof(*out);
  return call("before_backward", table_->before_backward, &context, out);
}

Status StrategyInstance::gradient_target(const strata_unit_context_t& context,
                                         strata_gradient_target_t* out) {
  out->struct_size = sizeof(*out);
  return call("gradient_target", table_->gradient_target, &context, out);
}

Status StrategyInstance::after_backward(const strata_unit_context_t& context, int32_t* residency) {
  return call("after_backward", table_->after_backward, &context, residency);
}

Status StrategyInstance::end_backward(int32_t sync) {
  return call("end_backward", table_->end_backward, sync);
}

uint32_t StrategyInstance::partition_count() { return table_->partition_count(self_); }

Status StrategyInstance::partition(uint32_t index, strata_partition_t* out) {
  out->struct_size = sizeof(*out);
  return call("partition", table_->partition, index, out);
}

Status StrategyInstance::before_step() { return call("before_step", table_->before_step); }

Status StrategyInstance::after_step(int32_t updated) {
  return call("after_step", table_->after_step, updated);
}

Status StrategyInstance::all_reduce_small(const strata_small_reduction_t& reduction) {
  return call("all_reduce_small", table_->all_reduce_small, &reduction);
}

Status StrategyInstance::quiesce() { return call("quiesce", table_->quiesce); }

void StrategyInstance::abort(const char* reason) { table_->abort(self_, reason); }

Status StrategyInstance::detach() { return call("detach", table_->detach); }

Result<const strata_collectives_1_t*> StrategyInstance::collectives() const {
  const auto* table = static_cast<const strata_collectives_1_t*>(
      library_->optional_table(STRATA_COLLECTIVES_1, sizeof(strata_collectives_1_t)));
  if (table == nullptr) {
    return unsupported(
        fmt::format("{}: its plugin '{}' has no table '{}', so it offers no "
                    "collectives. HINT: another strategy",
                    name_, library_->path(), STRATA_COLLECTIVES_1));
  }
  return table;
}

Status StrategyInstance::all_reduce(const strata_collective_args_t& args) {
  STRATA_ASSIGN_OR_RETURN(const auto* table, collectives());
  (void)library_->errors().take();
  return to_status(table->all_reduce(unwrap_checked(self_), &args), "all_reduce");
}

Status StrategyInstance::all_gather(const strata_collective_args_t& args) {
  STRATA_ASSIGN_OR_RETURN(const auto* table, collectives());
  (void)library_->errors().take();
  return to_status(table->all_gather(unwrap_checked(self_), &args), "all_gather");
}

Status StrategyInstance::reduce_scatter(const strata_collective_args_t& args) {
  STRATA_ASSIGN_OR_RETURN(const auto* table, collectives());
  (void)library_->errors().take();
  return to_status(table->reduce_scatter(unwrap_checked(self_), &args), "reduce_scatter");
}

Status StrategyInstance::broadcast(const strata_collective_args_t& args) {
  STRATA_ASSIGN_OR_RETURN(const auto* table, collectives());
  (void)library_->errors().take();
  return to_status(table->broadcast(unwrap_checked(self_), &args), "broadcast");
}

Status StrategyInstance::barrier() {
  STRATA_ASSIGN_OR_RETURN(const auto* table, collectives());
  (void)library_->errors().take();
  return to_status(table->barrier(unwrap_checked(self_)), "barrier");
}

}  // namespace strata::plugin
