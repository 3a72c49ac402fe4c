// The checked mode outside of a micro-batch: one test per rule.
#include "strata/plugin/checked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/abi/fake_strategy.h"

namespace strata::test {
namespace {

using ::testing::HasSubstr;

class CheckedLife : public CheckedFixture {
 protected:
  // Attaches with the answers bent so far, which must be refused.
  void expect_attach_fault(const std::string& text) {
    ASSERT_EQ(create(), STRATA_OK) << host.take();
    expect_plugin_fault(attach(), text);
  }
  strata_status_t open(uint32_t unit, int32_t intent = STRATA_INTENT_READ) {
    view.struct_size = sizeof(view);
    return table->open_unit(self, unit, intent, &view);
  }
  strata_status_t reduce(strata_small_reduction_t reduction) {
    reduction.struct_size = sizeof(reduction);
    return table->all_reduce_small(self, &reduction);
  }
};

TEST_F(CheckedLife, LetsAWholeRunPass) {
  attached();
  ASSERT_EQ(open(1, STRATA_INTENT_WRITE), STRATA_OK);
  ASSERT_EQ(table->close_unit(self, 1), STRATA_OK);
  for (int step = 0; step < 2; ++step) {
    forward();
    backward();
    ASSERT_EQ(table->end_backward(self, 1), STRATA_OK) << host.take();
    ASSERT_EQ(table->partition_count(self), 3u) << host.take();
    strata_partition_t partition{};
    partition.struct_size = sizeof(partition);
    ASSERT_EQ(table->partition(self, 1, &partition), STRATA_OK) << host.take();
    EXPECT_EQ(partition.unit, 1u);
    ASSERT_EQ(table->before_step(self), STRATA_OK) << host.take();
    fake.parameters[0].fill(17);  // the update
    ASSERT_EQ(table->after_step(self, 1), STRATA_OK) << host.take();
    forward(STRATA_PHASE_INFERENCE);
    forward(STRATA_PHASE_INFERENCE);
  }
  ASSERT_EQ(table->quiesce(self), STRATA_OK);
  ASSERT_EQ(table->detach(self), STRATA_OK);
  ASSERT_EQ(attach(), STRATA_OK) << host.take();
  table->destroy(std::exchange(self, nullptr));
  EXPECT_TRUE(has_called("destroy"));
  EXPECT_EQ(host.take(), "");
}

TEST_F(CheckedLife, GivesOneWrapperForOneTable) {
  EXPECT_EQ(*plugin::wrap_checked(FakeStrategy::table(), host.offer()), table);
  const strata_strategy_1_t other = *FakeStrategy::table();
  EXPECT_NE(*plugin::wrap_checked(&other, host.offer()), table);
}

TEST_F(CheckedLife, UnwrapsToThePluginsOwnInstance) {
  attached();
  EXPECT_EQ(plugin::unwrap_checked(self), reinterpret_cast<strata_strategy_t*>(&fake));
  EXPECT_EQ(plugin::unwrap_checked(plugin::unwrap_checked(self)),
            reinterpret_cast<strata_strategy_t*>(&fake));
}

// ---- without an instance ----

TEST_F(CheckedLife, NamesBadCapabilities) {
  strata_capabilities_t out{};
  out.struct_size = sizeof(out);
  fake.answers.capabilities.max_world = 0;
  fake.answers.capabilities.min_world = 0;
  expect_plugin_fault(table->describe("bent", &out), "min_world 0");
  fake.answers.capabilities.min_world = 1;
  fake.answers.capabilities.summary = nullptr;
  expect_plugin_fault(table->describe("bent", &out), "summary NULL");
  fake.answers.capabilities.summary = "x";
  fake.answers.capabilities.devices = 0;
  expect_plugin_fault(table->describe("bent", &out), "empty mask");
  fake.answers.capabilities.devices = 2;
  fake.answers.is_fickle = true;
  expect_plugin_fault(table->describe("bent", &out), "something else when asked again");
}

TEST_F(CheckedLife, NamesAnOptionWithoutText) {
  strata_option_info_t out{};
  out.struct_size = sizeof(out);
  fake.answers.option.description = nullptr;
  expect_plugin_fault(table->option("bent", 0, &out), "option(index 0) answered a NULL text");
}

TEST_F(CheckedLife, NamesAnInstanceThatIsMissingOrTooMuch) {
  fake.answers.creates_nothing = true;
  expect_plugin_fault(create(), "returned STRATA_OK and no instance");
  fake.answers.status = STRATA_E_INVALID_ARGUMENT;
  fake.answers.text = "no";
  expect_plugin_fault(create(), "failed and left an instance");
  EXPECT_EQ(self, nullptr);
}

TEST_F(CheckedLife, NamesAFailureWithoutText) {
  fake.answers.status = STRATA_E_UNSUPPORTED;
  expect_plugin_fault(create(), "returned status 2 and wrote no text");
}

TEST_F(CheckedLife, PassesAFailureWithItsText) {
  attached();
  fake.answers.status = STRATA_E_OUT_OF_MEMORY;
  fake.answers.text = "bent: no memory";
  EXPECT_EQ(open(0), STRATA_E_OUT_OF_MEMORY);
  EXPECT_EQ(host.take(), "bent: no memory");
}

TEST_F(CheckedLife, NamesAnUnknownStatus) {
  attached();
  fake.answers.status = 77;
  expect_plugin_fault(table->quiesce(self), "returned status 77");
}

TEST_F(CheckedLife, NamesWhatUnwinds) {
  attached();
  fake.answers.throws = true;
  EXPECT_EQ(table->quiesce(self), STRATA_E_INTERNAL);
  EXPECT_THAT(host.take(), HasSubstr("quiesce threw 'bent'. RULE: nothing unwinds across"));
}

// ---- the model ----

TEST_F(CheckedLife, NamesABadLayout) {
  strata_unit_t unit{};
  unit.name = "u";
  strata_layout_t out{};
  out.struct_size = sizeof(out);
  ASSERT_EQ(create(), STRATA_OK);
  fake.answers.layout.parameter_alignment = 96;
  expect_plugin_fault(table->layout(self, &unit, &out),
                      "layout(unit 'u') asked for parameter_alignment 96");
  fake.answers.layout.parameter_alignment = 64;
  fake.answers.layout.unit_multiple = 100;
  expect_plugin_fault(table->layout(self, &unit, &out), "unit_multiple 100");
  fake.answers.layout.unit_multiple = 64;
  fake.answers.is_fickle = true;
  expect_plugin_fault(table->layout(self, &unit, &out), "something else when asked again");
}

TEST_F(CheckedLife, NamesAChangedStructSize) {
  strata_unit_t unit{};
  unit.name = "u";
  strata_layout_t out{};
  out.struct_size = sizeof(out);
  ASSERT_EQ(create(), STRATA_OK);
  fake.answers.spoils_struct_size = true;
  expect_plugin_fault(table->layout(self, &unit, &out), "changed struct_size from 24 to 1");
}

TEST_F(CheckedLife, NamesAWritePastTheCallersStruct) {
  strata_unit_t unit{};
  unit.name = "u";
  strata_layout_t out{};
  out.struct_size = sizeof(out);
  ASSERT_EQ(create(), STRATA_OK);
  fake.answers.writes_past_the_end = true;
  expect_plugin_fault(table->layout(self, &unit, &out), "wrote past the 24 bytes");
}

TEST_F(CheckedLife, NamesAnOpenUnitOfTheWrongDtype) {
  attached();
  fake.answers.view[0].dtype = STRATA_DTYPE_BF16;
  expect_plugin_fault(open(0), "open_unit(unit 'embed') answered a view of dtype 2, not 1");
}

TEST_F(CheckedLife, NamesAnOpenUnitWithoutOrWithCrookedMemory) {
  attached();
  fake.answers.view[0].data = nullptr;
  expect_plugin_fault(open(0), "answered data NULL for 128 elements");
}

TEST_F(CheckedLife, NamesCrookedMemory) {
  attached();
  fake.answers.view[1].data = fake.parameters[1].data() + 1;
  expect_plugin_fault(open(1), "which is not a multiple of 64 bytes");
}

// ---- partitions ----

TEST_F(CheckedLife, NamesPartitionsOutOfOrder) {
  std::swap(fake.answers.partitions[0], fake.answers.partitions[1]);
  expect_attach_fault("by rising unit, then offset");
}

TEST_F(CheckedLife, NamesPartitionsThatOverlap) {
  fake.answers.partitions.insert(fake.answers.partitions.begin() + 1, fake.answers.partitions[0]);
  fake.answers.partitions[1].offset = 64;
  fake.answers.partitions[1].numel = 64;
  expect_attach_fault("without overlap");
}

TEST_F(CheckedLife, NamesAPartitionOutsideItsUnit) {
  fake.answers.partitions[1].offset = 64;
  expect_attach_fault("answered [64, 192) of a unit of 128 elements");
}

TEST_F(CheckedLife, NamesAPartitionThatIsNotAligned) {
  fake.answers.partitions[0].numel = 100;
  expect_attach_fault("answered offset 0 and numel 100. RULE: multiples of 64");
}

TEST_F(CheckedLife, NamesAGapBetweenPartitions) {
  fake.answers.partitions[0].numel = 64;
  expect_attach_fault("partition(unit 'embed') covers 64 of 128 elements over all ranks");
}

TEST_F(CheckedLife, NamesAUnitWithoutPartition) {
  fake.answers.partitions.pop_back();
  expect_attach_fault("partition(unit 'frozen') covers 0 of 128");
}

TEST_F(CheckedLife, NamesWrongFieldsOfAPartition) {
  const std::vector<std::pair<std::function<void(strata_partition_t&)>, std::string>> cases = {
      {[](auto& p) { p.unit = 9; }, "answered unit 9 of 3"},
      {[](auto& p) { p.master = nullptr; }, "answered master NULL"},
      {[](auto& p) { p.gradient = nullptr; }, "answered gradient NULL"},
      {[](auto& p) { p.gradient = p.master; }, "a gradient that overlaps its master"},
      {[](auto& p) { p.gradient_dtype = STRATA_DTYPE_BF16; }, "gradient_dtype 2, not 1"},
      {[](auto& p) { p.place = 0; }, "answered place 0"},
      {[](auto& p) { p.trainable = 0; }, "answered trainable 0 for a unit with trainable 1"},
      {[](auto& p) { p.master_is_parameter = 2; }, "answered master_is_parameter 2"},
      {[](auto& p) { p.replicas = 0; }, "answered replica 0 of 0 in a world of 1"},
      {[](auto& p) { p.replica = 1; }, "answered replica 1 of 1"}};
  for (const auto& [bend, text] : cases) {
    const strata_partition_t good = fake.answers.partitions[1];
    bend(fake.answers.partitions[1]);
    expect_attach_fault(text);
    table->destroy(std::exchange(self, nullptr));
    fake.answers.partitions[1] = good;
  }
}

TEST_F(CheckedLife, NamesDtypesThatPartitionsOf16BitUnitsCannotHave) {
  compute_dtype = STRATA_DTYPE_BF16;
  expect_attach_fault("answered master_is_parameter 1 for a unit of dtype 2");
  table->destroy(std::exchange(self, nullptr));
  for (strata_partition_t& p : fake.answers.partitions) p.master_is_parameter = 0;
  accumulate_dtype = STRATA_DTYPE_F16;
  expect_attach_fault("answered gradient_dtype 1, not 3");
}

TEST_F(CheckedLife, NamesAUnitOfADtypeThatIsNoFloat) {
  ASSERT_EQ(create(), STRATA_OK);
  reduce_dtype = STRATA_DTYPE_I64;
  expect_host_fault(attach(), "attach(unit 'embed') of 'bent' has dtypes 1, 5 and 1");
}

TEST_F(CheckedLife, NamesAGradientOfAFrozenUnit) {
  fake.answers.partitions[2].gradient = fake.gradients[2].data();
  expect_attach_fault("answered a gradient for a frozen unit");
}

TEST_F(CheckedLife, NamesPartitionsThatMove) {
  attached();
  strata_partition_t partition{};
  partition.struct_size = sizeof(partition);
  fake.answers.partitions[0].master = fake.gradients[2].data();
  expect_plugin_fault(table->partition(self, 0, &partition), "something else for index 0");
}

TEST_F(CheckedLife, NamesPartitionsThatGrow) {
  attached();
  fake.answers.partitions.push_back(fake.answers.partitions[0]);
  EXPECT_EQ(table->partition_count(self), 0u);
  EXPECT_THAT(host.take(), HasSubstr("answered 4, and 3 in attach"));
}

TEST_F(CheckedLife, NamesAReductionThatChangesOneRanksNumbers) {
  attached();
  fake.answers.reduce = [](const auto& r) { static_cast<double*>(r.values)[0] += 1; };
  double value = 3;
  expect_plugin_fault(reduce({0, STRATA_DTYPE_F64, STRATA_REDUCE_SUM, 1, &value}),
                      "changed the numbers of a world of one rank");
}

// ---- the host's side ----

TEST_F(CheckedLife, NamesAHostThatUsesWhatIsNotAttached) {
  ASSERT_EQ(create(), STRATA_OK);
  fake.calls.clear();
  expect_host_fault(open(0), "was called in state [created]");
  expect_host_fault(before_forward(0), "was called before attach");
  expect_host_fault(table->before_step(self), "it belongs into [between-steps]");
  expect_host_fault(table->detach(self), "in state [created]");
  EXPECT_TRUE(fake.calls.empty()) << "the plugin is not called";
}

TEST_F(CheckedLife, NamesAHostThatDetachesWhileWorkMayRun) {
  attached();
  expect_host_fault(table->detach(self), "was called without quiesce");
  ASSERT_EQ(table->quiesce(self), STRATA_OK);
  forward(STRATA_PHASE_INFERENCE);
  expect_host_fault(table->detach(self), "was called without quiesce");
}

TEST_F(CheckedLife, NamesAHostThatAttachesTwice) {
  attached();
  expect_host_fault(attach(), "was called in state [between-steps]");
}

TEST_F(CheckedLife, NamesAHostThatOpensTwoUnits) {
  attached();
  expect_host_fault(open(7), "names unit 7 of 3");
  expect_host_fault(open(0, 9), "has intent 9");
  ASSERT_EQ(open(0), STRATA_OK);
  expect_host_fault(open(1), "while unit 'embed' is open");
  expect_host_fault(before_forward(0), "while unit 'embed' is open");
  expect_host_fault(table->close_unit(self, 1), "closes a unit that is not open");
  EXPECT_EQ(table->close_unit(self, 0), STRATA_OK);
  expect_host_fault(table->close_unit(self, 0), "closes a unit that is not open");
}

TEST_F(CheckedLife, NamesAHostThatStepsOutOfOrder) {
  attached();
  expect_host_fault(table->before_step(self), "without reduced gradients");
  expect_host_fault(table->after_step(self, 1), "without before_step");
  forward();
  backward();
  ASSERT_EQ(table->end_backward(self, 1), STRATA_OK);
  ASSERT_EQ(table->before_step(self), STRATA_OK);
  expect_host_fault(table->before_step(self), "was called twice");
  expect_host_fault(before_forward(0), "before after_step");
  expect_host_fault(table->after_step(self, 5), "has updated = 5");
}

TEST_F(CheckedLife, NamesAHostWithABadReduction) {
  attached();
  double value = 0;
  expect_host_fault(reduce({0, STRATA_DTYPE_F32, STRATA_REDUCE_SUM, 1, &value}), "dtype 1");
  expect_host_fault(reduce({0, STRATA_DTYPE_F64, 9, 1, &value}), "has op 9");
  expect_host_fault(reduce({0, STRATA_DTYPE_F64, STRATA_REDUCE_SUM, 5000, &value}), "5000 numbers");
  expect_host_fault(reduce({0, STRATA_DTYPE_F64, STRATA_REDUCE_SUM, 1, nullptr}), "1 numbers");
}

TEST_F(CheckedLife, NamesAHostThatGoesOnBehindALoss) {
  attached();
  fake.answers.status = STRATA_E_PEER_LOST;
  fake.answers.text = "bent: rank 1 is gone";
  EXPECT_EQ(table->quiesce(self), STRATA_E_PEER_LOST);
  EXPECT_EQ(host.take(), "bent: rank 1 is gone");
  expect_host_fault(table->quiesce(self), "was called behind a failure");
  table->abort(self, "rank 1 is gone");
  table->abort(self, "again");
  EXPECT_TRUE(has_called("abort"));
}

TEST_F(CheckedLife, NamesAHostThatUsesADeadInstance) {
  attached();
  strata_strategy_t* dead = std::exchange(self, nullptr);
  table->destroy(dead);
  EXPECT_EQ(table->quiesce(dead), STRATA_E_STATE);
  EXPECT_THAT(host.take(), HasSubstr("quiesce() of an instance that is not alive"));
  table->destroy(dead);
  EXPECT_THAT(host.take(), HasSubstr("destroy() of an instance that is not alive"));
  table->destroy(nullptr);
  EXPECT_EQ(host.take(), "");
}

TEST_F(CheckedLife, NamesTwoThreadsInOneInstance) {
  attached();
  strata_status_t other = STRATA_OK;
  std::string text;
  fake.answers.during_quiesce = [&] {
    std::thread([&] {
      other = table->before_step(self);
      text = host.take();
    }).join();
  };
  EXPECT_EQ(table->quiesce(self), STRATA_OK);
  EXPECT_EQ(other, STRATA_E_STATE);
  EXPECT_THAT(text, HasSubstr("before_step() of 'bent' while another slot is running"));
}

TEST_F(CheckedLife, AllowsAbortFromAnotherThreadInsideASlot) {
  attached();
  fake.answers.during_quiesce = [&] { std::thread([&] { table->abort(self, "enough"); }).join(); };
  EXPECT_EQ(table->quiesce(self), STRATA_OK);
  EXPECT_TRUE(has_called("abort"));
}

TEST_F(CheckedLife, ServesSeveralInstancesOnSeveralThreads) {
  attached();
  std::vector<std::thread> threads;
  std::atomic<int> passed{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      FakeStrategy own;
      FakeHost own_host;
      strata_create_args_t args{};
      args.struct_size = sizeof(args);
      args.name = "bent";
      args.world = &world;
      args.device = {STRATA_DEVICE_CPU, 0};
      args.host = own_host.abi();
      strata_strategy_t* instance = nullptr;
      if (table->create(&args, &instance) != STRATA_OK) return;
      strata_unit_t unit{};
      unit.name = "u";
      for (int i = 0; i < 200; ++i) {
        strata_layout_t out{};
        out.struct_size = sizeof(out);
        if (table->layout(instance, &unit, &out) == STRATA_OK) ++passed;
      }
      table->destroy(instance);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed, 800);
}

}  // namespace
}  // namespace strata::test
