// A strategy in the test's own process whose every answer can be bent, wrapped in the checked mode.
#ifndef STRATA_TESTS_ABI_FAKE_STRATEGY_H_
#define STRATA_TESTS_ABI_FAKE_STRATEGY_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "strata/plugin/checked.h"
#include "tests/abi/fake_host.h"

namespace strata::test {

constexpr uint64_t kNumel = 128;

// What the strategy would answer; a test bends it. `status` is what the next slot returns, with
// `text` in the sink.
struct Answers {
  strata_status_t status = STRATA_OK;
  std::string text;
  strata_capabilities_t capabilities{};
  strata_option_info_t option{};
  strata_layout_t layout{};
  std::array<strata_unit_view_t, 3> view{};
  std::array<strata_gradient_target_t, 3> target{};
  int32_t after_forward = STRATA_UNIT_RELEASED;
  int32_t after_backward = STRATA_UNIT_RELEASED;
  std::vector<strata_partition_t> partitions;
  bool spoils_struct_size = false;
  bool writes_past_the_end = false;
  bool is_fickle = false;  // answers differ from call to call
  bool throws = false;
  bool creates_nothing = false;
  std::function<void(const strata_small_reduction_t&)> reduce = [](const auto&) {};
  std::function<void()> during_quiesce = [] {};
};

// Three units of kNumel elements, the last one frozen, entered 0 1 2.
class FakeStrategy {
 public:
  alignas(64) std::array<std::array<float, kNumel>, 3> parameters{};
  alignas(64) std::array<std::array<float, kNumel>, 3> gradients{};
  Answers answers;
  std::vector<std::string> calls;

  FakeStrategy() {
    current() = this;
    answers.capabilities.min_world = 1;
    answers.capabilities.devices = answers.capabilities.compute_dtypes =
        answers.capabilities.reduce_dtypes = 2;
    answers.capabilities.summary = "bends";
    answers.option.key = answers.option.default_value = answers.option.description = "x";
    answers.layout.parameter_alignment = answers.layout.unit_multiple = 64;
    for (size_t u = 0; u < 3; ++u) {
      parameters[u].fill(static_cast<float>(u + 1));
      answers.view[u].dtype = STRATA_DTYPE_F32;
      answers.view[u].data = parameters[u].data();
      answers.target[u].dtype = STRATA_DTYPE_F32;
      answers.target[u].data = gradients[u].data();
      answers.target[u].mode = STRATA_GRADIENT_WRITE;
      strata_partition_t p{};
      p.unit = static_cast<uint32_t>(u);
      p.numel = kNumel;
      p.master = parameters[u].data();
      p.gradient = u < 2 ? gradients[u].data() : nullptr;
      p.gradient_dtype = STRATA_DTYPE_F32;
      p.place = STRATA_PLACE_DEVICE;
      p.trainable = u < 2 ? 1 : 0;
      p.master_is_parameter = 1;
      p.replicas = 1;
      answers.partitions.push_back(p);
    }
  }
  ~FakeStrategy() { current() = nullptr; }

  static const strata_strategy_1_t* table();

 private:
  friend struct FakeSlots;
  static FakeStrategy*& current() {
    static thread_local FakeStrategy* instance = nullptr;
    return instance;
  }
};

// The slots. The instance pointer is the FakeStrategy itself.
struct FakeSlots {
  using Self = strata_strategy_t*;
  static FakeStrategy& of(Self self) { return *reinterpret_cast<FakeStrategy*>(self); }
  static FakeStrategy& of(std::nullptr_t) { return *FakeStrategy::current(); }

  template <typename Which>
  static strata_status_t called(Which self, const char* slot) {
    FakeStrategy& fake = of(self);
    fake.calls.emplace_back(slot);
    if (fake.answers.throws) throw std::runtime_error("bent");
    const strata_status_t status = std::exchange(fake.answers.status, STRATA_OK);
    if (status != STRATA_OK && !fake.answers.text.empty()) {
      static_cast<const strata_host_log_1_t*>(FakeHost::get_table(STRATA_HOST_LOG_1))
          ->fail(nullptr, status, fake.answers.text.c_str());
    }
    return status;
  }
  template <typename Which, typename T>
  static strata_status_t answer(Which self, const char* slot, T* out, T value) {
    const strata_status_t status = called(self, slot);
    if (status != STRATA_OK) return status;
    Answers& answers = of(self).answers;
    value.struct_size = answers.spoils_struct_size ? 1 : out->struct_size;
    *out = value;
    if (answers.writes_past_the_end) reinterpret_cast<char*>(out)[sizeof(T)] = 0;
    return STRATA_OK;
  }

  static uint32_t count() { return 1; }
  static const char* name(uint32_t index) { return index == 0 ? "bent" : nullptr; }
  static strata_status_t describe(const char*, strata_capabilities_t* out) {
    Answers& answers = of(nullptr).answers;
    if (answers.is_fickle) answers.capabilities.flags ^= 1;
    return answer(nullptr, "describe", out, answers.capabilities);
  }
  static strata_status_t option(const char*, uint32_t, strata_option_info_t* out) {
    return answer(nullptr, "option", out, of(nullptr).answers.option);
  }
  static strata_status_t estimate(const strata_create_args_t*, const strata_model_t*,
                                  strata_estimate_t* out) {
    return answer(nullptr, "estimate", out, strata_estimate_t{});
  }
  static strata_status_t create(const strata_create_args_t*, Self* out) {
    const strata_status_t status = called(nullptr, "create");
    const bool creates = (status == STRATA_OK) != of(nullptr).answers.creates_nothing;
    if (creates) *out = reinterpret_cast<Self>(FakeStrategy::current());
    return status;
  }
  static strata_status_t layout(Self self, const strata_unit_t*, strata_layout_t* out) {
    if (of(self).answers.is_fickle) of(self).answers.layout.unit_multiple *= 2;
    return answer(self, "layout", out, of(self).answers.layout);
  }
  static strata_status_t attach(Self self, const strata_model_t*) { return called(self, "attach"); }
  static strata_status_t open_unit(Self self, uint32_t unit, int32_t, strata_unit_view_t* out) {
    return answer(self, "open_unit", out, of(self).answers.view[unit]);
  }
  static strata_status_t close_unit(Self self, uint32_t) { return called(self, "close_unit"); }
  static strata_status_t before_forward(Self self, const strata_unit_context_t* context,
                                        strata_unit_view_t* out) {
    return answer(self, "before_forward", out, of(self).answers.view[context->unit]);
  }
  static strata_status_t after_forward(Self self, const strata_unit_context_t*, int32_t* out) {
    *out = of(self).answers.after_forward;
    return called(self, "after_forward");
  }
  static strata_status_t before_backward(Self self, const strata_unit_context_t* context,
                                         strata_unit_view_t* out) {
    return answer(self, "before_backward", out, of(self).answers.view[context->unit]);
  }
  static strata_status_t gradient_target(Self self, const strata_unit_context_t* context,
                                         strata_gradient_target_t* out) {
    return answer(self, "gradient_target", out, of(self).answers.target[context->unit]);
  }
  static strata_status_t after_backward(Self self, const strata_unit_context_t*, int32_t* out) {
    *out = of(self).answers.after_backward;
    return called(self, "after_backward");
  }
  static strata_status_t end_backward(Self self, int32_t) { return called(self, "end_backward"); }
  static uint32_t partition_count(Self self) {
    return static_cast<uint32_t>(of(self).answers.partitions.size());
  }
  static strata_status_t partition(Self self, uint32_t index, strata_partition_t* out) {
    return answer(self, "partition", out, of(self).answers.partitions[index]);
  }
  static strata_status_t before_step(Self self) { return called(self, "before_step"); }
  static strata_status_t after_step(Self self, int32_t) { return called(self, "after_step"); }
  static strata_status_t all_reduce_small(Self self, const strata_small_reduction_t* reduction) {
    of(self).answers.reduce(*reduction);
    return called(self, "all_reduce_small");
  }
  static strata_status_t quiesce(Self self) {
    of(self).answers.during_quiesce();
    return called(self, "quiesce");
  }
  static void abort(Self self, const char*) { of(self).calls.emplace_back("abort"); }
  static strata_status_t detach(Self self) { return called(self, "detach"); }
  static void destroy(Self self) { of(self).calls.emplace_back("destroy"); }
};

inline const strata_strategy_1_t* FakeStrategy::table() {
  using F = FakeSlots;
  static const strata_strategy_1_t table = {sizeof(strata_strategy_1_t),
                                            0,
                                            F::count,
                                            F::name,
                                            F::describe,
                                            F::option,
                                            F::estimate,
                                            F::create,
                                            F::layout,
                                            F::attach,
                                            F::open_unit,
                                            F::close_unit,
                                            F::before_forward,
                                            F::after_forward,
                                            F::before_backward,
                                            F::gradient_target,
                                            F::after_backward,
                                            F::end_backward,
                                            F::partition_count,
                                            F::partition,
                                            F::before_step,
                                            F::after_step,
                                            F::all_reduce_small,
                                            F::quiesce,
                                            F::abort,
                                            F::detach,
                                            F::destroy};
  return &table;
}

// A host that calls the wrapped table, and the small language of the tests.
class CheckedFixture : public ::testing::Test {
 protected:
  FakeHost host;
  FakeStrategy fake;
  const strata_strategy_1_t* table = *plugin::wrap_checked(FakeStrategy::table(), host.offer());
  strata_strategy_t* self = nullptr;
  strata_world_t world{sizeof(strata_world_t), 0, 1, 0, 1, 0, 1, 0};
  std::array<strata_unit_t, 3> units{};
  const std::array<uint32_t, 3> order{0, 1, 2};
  std::array<bool, 3> is_trained{true, true, false};
  int32_t compute_dtype = STRATA_DTYPE_F32;
  int32_t reduce_dtype = STRATA_DTYPE_F32;
  int32_t accumulate_dtype = 0;  // nothing said: F32
  strata_unit_view_t view{};
  strata_gradient_target_t target{};
  int32_t residency = 0;
  uint32_t micro_batch = 0;
  int32_t sync = 1;

  void TearDown() override {
    if (self != nullptr) table->destroy(self);
  }

  // Everything that one of these returns is checked by the caller.
  strata_status_t create() {
    strata_create_args_t args{};
    args.struct_size = sizeof(args);
    args.name = "bent";
    args.world = &world;
    args.device = {STRATA_DEVICE_CPU, 0};
    args.host = host.abi();
    return table->create(&args, &self);
  }
  strata_status_t attach() {
    static constexpr const char* kNames[] = {"embed", "block.0", "frozen"};
    for (size_t u = 0; u < 3; ++u) {
      units[u].struct_size = sizeof(strata_unit_t);
      units[u].name = kNames[u];
      units[u].numel = kNumel;
      units[u].compute_dtype = compute_dtype;
      units[u].reduce_dtype = reduce_dtype;
      units[u].accumulate_dtype = accumulate_dtype;
      units[u].entries = 1;
      units[u].trainable = is_trained[u] ? 1 : 0;
    }
    strata_model_t model{};
    model.struct_size = sizeof(model);
    model.unit_count = model.order_count = 3;
    model.units = units.data();
    model.order = order.data();
    return table->attach(self, &model);
  }
  void attached() {
    ASSERT_EQ(create(), STRATA_OK) << host.take();
    ASSERT_EQ(attach(), STRATA_OK) << host.take();
  }
  strata_unit_context_t context(uint32_t unit, int32_t phase) const {
    strata_unit_context_t out{};
    out.struct_size = sizeof(out);
    out.unit = unit;
    out.phase = phase;
    out.next_unit = STRATA_NONE;
    out.micro_batch = micro_batch;
    out.sync = sync;
    return out;
  }
  strata_status_t before_forward(uint32_t unit, int32_t phase = STRATA_PHASE_FORWARD) {
    const strata_unit_context_t with = context(unit, phase);
    view.struct_size = sizeof(view);
    return table->before_forward(self, &with, &view);
  }
  strata_status_t after_forward(uint32_t unit, int32_t phase = STRATA_PHASE_FORWARD) {
    const strata_unit_context_t with = context(unit, phase);
    return table->after_forward(self, &with, &residency);
  }
  strata_status_t before_backward(uint32_t unit) {
    const strata_unit_context_t with = context(unit, STRATA_PHASE_BACKWARD);
    view.struct_size = sizeof(view);
    return table->before_backward(self, &with, &view);
  }
  strata_status_t gradient_target(uint32_t unit) {
    const strata_unit_context_t with = context(unit, STRATA_PHASE_BACKWARD);
    target.struct_size = sizeof(target);
    return table->gradient_target(self, &with, &target);
  }
  strata_status_t after_backward(uint32_t unit) {
    const strata_unit_context_t with = context(unit, STRATA_PHASE_BACKWARD);
    return table->after_backward(self, &with, &residency);
  }
  void forward(int32_t phase = STRATA_PHASE_FORWARD) {
    for (uint32_t u = 0; u < 3; ++u) {
      ASSERT_EQ(before_forward(u, phase), STRATA_OK) << host.take();
      ASSERT_EQ(after_forward(u, phase), STRATA_OK) << host.take();
    }
  }
  void backward() {
    for (int u = 2; u >= 0; --u) {
      const auto unit = static_cast<uint32_t>(u);
      ASSERT_EQ(before_backward(unit), STRATA_OK) << host.take();
      if (u < 2) {
        ASSERT_EQ(gradient_target(unit), STRATA_OK) << host.take();
      }
      ASSERT_EQ(after_backward(unit), STRATA_OK) << host.take();
    }
  }
  // Before attached(): unit 0 is frozen, so it is in front of everything that is trained.
  void freeze_first_unit() {
    is_trained[0] = false;
    fake.answers.partitions[0].trainable = 0;
    fake.answers.partitions[0].gradient = nullptr;
  }
  bool has_called(const std::string& slot) const {
    return std::find(fake.calls.begin(), fake.calls.end(), slot) != fake.calls.end();
  }
  // The plugin's or the host's fault, in these words.
  void expect_plugin_fault(strata_status_t status, const std::string& text) {
    EXPECT_EQ(status, STRATA_E_INTERNAL);
    expect_text("checked: bent: ", text);
  }
  void expect_host_fault(strata_status_t status, const std::string& text) {
    EXPECT_EQ(status, STRATA_E_STATE);
    expect_text("checked: host: ", text);
  }

 private:
  void expect_text(const std::string& begin, const std::string& text) {
    const std::string said = host.take();
    EXPECT_EQ(said.substr(0, begin.size()), begin) << said;
    EXPECT_NE(said.find(text), std::string::npos) << said << "\n  lacks: " << text;
    EXPECT_NE(said.find("RULE: "), std::string::npos) << said;
  }
};

}  // namespace strata::test

#endif  // STRATA_TESTS_ABI_FAKE_STRATEGY_H_
