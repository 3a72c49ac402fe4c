// A plugin written with the SDK: two strategies, options, aliases, and every way to fail.
#include <new>
#include <stdexcept>

#include "strata/sdk/host.h"
#include "strata/sdk/options.h"
#include "strata/sdk/plugin_entry.h"

namespace {

using namespace strata::sdk;  // NOLINT: a test

const std::vector<OptionInfo>& options() {
  static const std::vector<OptionInfo> all = {{"throws", "nothing", "What before_step throws"},
                                              {"bucket_cap_mb", "25", "Size of a bucket in MiB"}};
  return all;
}

class Thrower : public Strategy {
 public:
  explicit Thrower(const strata_create_args_t& args) : host_(args.host) {
    const Options given(args, options());
    what_ = given.choice("throws", {"nothing", "error", "bad_alloc", "runtime_error", "int",
                                    "silent_error", "host_error"});
    (void)given.integer("bucket_cap_mb", 1, 1000);
  }
  strata_layout_t layout(const strata_unit_t& unit) override {
    strata_layout_t out{};
    out.parameter_alignment = 64;
    out.unit_multiple = 64 * unit.parameter_count;
    return out;
  }
  void attach(const strata_model_t&) override {}
  strata_unit_view_t open_unit(uint32_t, int32_t) override { return {}; }
  void close_unit(uint32_t) override {}
  strata_unit_view_t before_forward(const strata_unit_context_t&) override { return {}; }
  int32_t after_forward(const strata_unit_context_t&) override { return STRATA_UNIT_KEPT; }
  strata_unit_view_t before_backward(const strata_unit_context_t&) override { return {}; }
  strata_gradient_target_t gradient_target(const strata_unit_context_t&) override { return {}; }
  int32_t after_backward(const strata_unit_context_t&) override { return STRATA_UNIT_KEPT; }
  void end_backward(bool) override {}
  const std::vector<strata_partition_t>& partitions() override { return partitions_; }
  void before_step() override {
    switch (what_) {
      case 1: throw Error(STRATA_E_TIMEOUT, "thrower: rank 3 did not come. HINT: look at rank 3");
      case 2: throw std::bad_alloc();
      case 3: throw std::runtime_error("a broken invariant");
      case 4: throw 7;
      case 5: throw Error(STRATA_E_STATE, "");
      case 6: check(services().store->get(host_, "nobody", nullptr, nullptr, 1), "asking"); break;
      default: break;
    }
  }
  void after_step(bool) override {}
  void all_reduce_small(const strata_small_reduction_t&) override {}
  void quiesce() override {}
  void abort(const char*) noexcept override {}
  void detach() override {}

 private:
  strata_host_t* host_;
  size_t what_ = 0;
  std::vector<strata_partition_t> partitions_;
};

strata_capabilities_t capabilities(uint32_t max_world) {
  strata_capabilities_t can{};
  can.min_world = 1;
  can.max_world = max_world;
  can.devices = STRATA_DEVICE_BIT(STRATA_DEVICE_CPU);
  can.compute_dtypes = can.reduce_dtypes = STRATA_DTYPE_BIT(STRATA_DTYPE_F32);
  can.summary = "throws";
  return can;
}

const std::vector<StrategyInfo>& strategies() {
  const auto create = [](const strata_create_args_t& args) -> std::unique_ptr<Strategy> {
    return std::make_unique<Thrower>(args);
  };
  static const std::vector<StrategyInfo> all = {
      {"thrower",
       capabilities(0),
       options(),
       create,
       nullptr,
       {{"throw_errors", "throws=error,bucket_cap_mb=7"}, {"throw_nothing", ""}}},
      {"thrower_alone", capabilities(1), {}, create, nullptr}};
  return all;
}

}  // namespace

STRATA_PLUGIN("strata.test.sdk", "0.1.0", strategies)
