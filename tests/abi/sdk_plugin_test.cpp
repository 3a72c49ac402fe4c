// A plugin written with the SDK, as the host sees it: nothing unwinds out, structs may grow.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "strata/plugin/strategy_instance.h"
#include "tests/abi/fake_host.h"

namespace strata::plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kFile = std::string(STRATA_TEST_PLUGINS) + "/libstrata_test_sdk.so";

class AnSdkPlugin : public ::testing::Test {
 protected:
  AnSdkPlugin() {
    auto loaded = PluginLibrary::load(kFile, host_.offer(), Closing::kAtEnd);
    STRATA_CHECK(loaded.ok()) << loaded.status().message();
    library_ = *loaded;
  }
  Result<StrategyInstance> create(const OptionList& options, bool is_checked = false,
                                  const std::string& name = "thrower", World world = {}) {
    return StrategyInstance::create({library_, name, options, ""}, world, {STRATA_DEVICE_CPU, 0},
                                    host_.abi(), is_checked);
  }
  Status thrown(const std::string& what) {
    auto instance = create({{"throws", what}});
    return instance.ok() ? instance->before_step() : instance.status();
  }

  test::FakeHost host_;
  std::shared_ptr<PluginLibrary> library_;
};

TEST_F(AnSdkPlugin, ListsStrategiesOptionsAndAliases) {
  EXPECT_EQ(library_->strategies(), (std::vector<std::string>{"thrower", "thrower_alone"}));
  const auto options = library_->options("thrower");
  ASSERT_EQ(options->size(), 2u);
  EXPECT_EQ((*options)[1].key, "bucket_cap_mb");
  EXPECT_EQ((*options)[1].default_value, "25");
  ASSERT_EQ(library_->aliases().size(), 2u);
  EXPECT_EQ(library_->aliases()[0].strategy, "thrower");
}

TEST_F(AnSdkPlugin, TurnsAnErrorIntoItsCodeAndText) {
  const Status status = thrown("error");
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.message(), "thrower: rank 3 did not come. HINT: look at rank 3");
}

TEST_F(AnSdkPlugin, TurnsEverythingElseThatIsThrownIntoAStatus) {
  EXPECT_EQ(thrown("bad_alloc").code(), Code::kOutOfMemory);
  EXPECT_EQ(thrown("runtime_error").code(), Code::kInternal);
  EXPECT_EQ(thrown("runtime_error").message(), "thrower: a broken invariant");
  EXPECT_THAT(thrown("int").message(), HasSubstr("not an exception"));
  EXPECT_THAT(thrown("silent_error").message(), HasSubstr("without saying why"));
  EXPECT_TRUE(thrown("nothing").ok());
}

TEST_F(AnSdkPlugin, KeepsTheTextOfAHostFunctionThatFailed) {
  const Status status = thrown("host_error");
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.message(), "nobody set the key 'nobody'");
}

TEST_F(AnSdkPlugin, RefusesOptionsAndWorldsInWords) {
  EXPECT_THAT(create({{"bucket_cap_mv", "3"}}).status().message(),
              HasSubstr("did you mean 'bucket_cap_mb'?"));
  EXPECT_THAT(create({{"bucket_cap_mb", "0"}}).status().message(),
              HasSubstr("thrower: option 'bucket_cap_mb' = '0'; allowed is a whole number from 1"));
  World two;
  two.size = 2;
  const Status status = create({}, false, "thrower_alone", two).status();
  EXPECT_THAT(status.message(), StartsWith("thrower_alone: a world of 2 ranks"));
}

TEST_F(AnSdkPlugin, OffersCollectivesAndCopiesForOneRank) {
  auto instance = create({}, true);
  ASSERT_TRUE(instance.ok()) << instance.status().message();
  float send[3] = {1, 2, 3};
  float receive[3] = {};
  strata_collective_args_t args{};
  args.struct_size = sizeof(args);
  args.dtype = STRATA_DTYPE_F32;
  args.send = send;
  args.receive = receive;
  args.count = 3;
  args.op = STRATA_REDUCE_SUM;
  EXPECT_TRUE(instance->all_reduce(args).ok());
  EXPECT_EQ(std::memcmp(send, receive, sizeof(send)), 0);
  EXPECT_TRUE(instance->barrier().ok());
  args.dtype = 99;
  EXPECT_EQ(instance->all_gather(args).code(), Code::kInvalidArgument);
  World two;
  two.size = 2;
  auto of_two = create({}, false, "thrower", two);
  EXPECT_EQ(of_two->barrier().code(), Code::kState);
}

TEST_F(AnSdkPlugin, SaysThatItHasNoEstimate) {
  strata_model_t model{};
  model.struct_size = sizeof(model);
  const auto estimate =
      StrategyInstance::estimate({library_, "thrower", {}, ""}, {}, {STRATA_DEVICE_CPU, 0}, model);
  EXPECT_EQ(estimate.status().code(), Code::kUnsupported);
}

// A host of a later minor version: its structs are longer, and so are the strides of its arrays.
TEST_F(AnSdkPlugin, ReadsLongerStructsAndWritesNothingPastTheCallersSize) {
  struct LongParameter {
    strata_parameter_t known;
    uint64_t later = ~uint64_t{0};
  };
  struct LongUnit {
    strata_unit_t known{};
    uint64_t later = ~uint64_t{0};
  } unit;
  LongParameter parameters[2] = {};
  for (LongParameter& parameter : parameters) {
    parameter.known.struct_size = sizeof(LongParameter);
    parameter.known.name = "p";
  }
  unit.known.struct_size = sizeof(unit);
  unit.known.name = "u";
  unit.known.parameter_count = 2;
  unit.known.parameters = &parameters[0].known;
  auto instance = create({});
  struct LongLayout {
    strata_layout_t known{};
    uint64_t later = 0x1234;
  } layout;
  strata_strategy_t* self = nullptr;
  strata_world_t world{sizeof(world), 0, 1, 0, 1, 0, 1, 0};
  strata_create_args_t args{};
  args.struct_size = sizeof(args);
  args.name = "thrower";
  args.world = &world;
  args.device = {STRATA_DEVICE_CPU, 0};
  args.host = host_.abi();
  const strata_strategy_1_t& table = *library_->strategy_table();
  ASSERT_EQ(table.create(&args, &self), STRATA_OK);
  layout.known.struct_size = sizeof(layout);
  EXPECT_EQ(table.layout(self, &unit.known, &layout.known), STRATA_OK);
  EXPECT_EQ(layout.known.unit_multiple, 128u);
  EXPECT_EQ(layout.known.struct_size, sizeof(layout));
  EXPECT_EQ(layout.later, 0x1234u);
  // Below the frozen minimum nothing is read.
  layout.known.struct_size = STRATA_LAYOUT_MIN_SIZE - 1;
  EXPECT_EQ(table.layout(self, &unit.known, &layout.known), STRATA_E_INVALID_ARGUMENT);
  EXPECT_THAT(host_.take(), HasSubstr("below the minimum"));
  EXPECT_EQ(table.layout(self, nullptr, &layout.known), STRATA_E_INVALID_ARGUMENT);
  EXPECT_EQ(table.layout(nullptr, &unit.known, &layout.known), STRATA_E_INVALID_ARGUMENT);
  table.destroy(self);
  table.destroy(nullptr);
}

// ---- the entry's side of the handshake ----

class TheEntry : public ::testing::Test {
 protected:
  TheEntry() : library_(dlopen(kFile.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    STRATA_CHECK(library_ != nullptr) << dlerror();
    entry_ = reinterpret_cast<strata_plugin_entry_fn>(dlsym(library_, STRATA_PLUGIN_ENTRY_NAME));
    hello_.magic = STRATA_HELLO_MAGIC;
    hello_.struct_size = sizeof(hello_);
    hello_.abi_major = STRATA_ABI_MAJOR;
    hello_.abi_minor = STRATA_ABI_MINOR;
    hello_.error = error_;
    hello_.error_size = sizeof(error_);
    hello_.host_id = "strata";
    hello_.host_version = "9";
    hello_.get_table = test::FakeHost::get_table;
  }
  ~TheEntry() override { dlclose(library_); }
  void expect(strata_status_t status, const std::string& text) {
    error_[0] = '\0';
    strata_plugin_t plugin{};
    EXPECT_EQ(entry_(&hello_, &plugin), status);
    EXPECT_THAT(std::string(error_), HasSubstr(text));
  }
  void* library_;
  strata_plugin_entry_fn entry_ = nullptr;
  char error_[512] = {};
  strata_hello_t hello_{};
};

TEST_F(TheEntry, AcceptsAGoodHello) { expect(STRATA_OK, ""); }

TEST_F(TheEntry, AcceptsALaterMinor) {
  hello_.abi_minor = STRATA_ABI_MINOR + 7;
  expect(STRATA_OK, "");
}

TEST_F(TheEntry, RefusesEveryBadFieldOfTheHello) {
  const strata_hello_t good = hello_;
  hello_.magic ^= 1;
  expect(STRATA_E_INVALID_ARGUMENT, "");
  hello_ = good;
  hello_.struct_size -= 8;
  expect(STRATA_E_INVALID_ARGUMENT, "");
  hello_ = good;
  hello_.error_size = 255;
  expect(STRATA_E_INVALID_ARGUMENT, "");
  hello_ = good;
  hello_.abi_major = STRATA_ABI_MAJOR + 1;
  expect(STRATA_E_UNSUPPORTED, "this one offers 1.1");
  hello_ = good;
  hello_.abi_minor = 0;
  expect(STRATA_E_UNSUPPORTED, "needs a host with ABI 0.1");
  hello_ = good;
  hello_.host_id = nullptr;
  expect(STRATA_E_INVALID_ARGUMENT, "host_id");
  hello_ = good;
  hello_.host_version = "";
  expect(STRATA_E_INVALID_ARGUMENT, "host_version");
  hello_ = good;
  hello_.get_table = nullptr;
  expect(STRATA_E_INVALID_ARGUMENT, "get_table");
  hello_ = good;
  hello_.reserved[3] = 1;
  expect(STRATA_E_INVALID_ARGUMENT, "reserved");
  hello_ = good;
  hello_.get_table = [](const char* id) -> const void* {
    return std::strcmp(id, STRATA_HOST_STORE_1) == 0 ? nullptr : test::FakeHost::get_table(id);
  };
  expect(STRATA_E_UNSUPPORTED, "the host has no table 'strata.host.store/1'");
  EXPECT_EQ(entry_(nullptr, nullptr), STRATA_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace strata::plugin
