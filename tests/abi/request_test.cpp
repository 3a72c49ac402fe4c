// --strategy NAME[:key=value,...], --set key=value, and what a run may ask of a strategy.
#include "strata/plugin/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/plugin/capabilities.h"

namespace strata::plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(AStrategyRequest, HasANameAlone) {
  const auto request = parse_strategy_request("fsdp");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->name, "fsdp");
  EXPECT_TRUE(request->options.empty());
  EXPECT_TRUE(request->file.empty());
}

TEST(AStrategyRequest, KeepsOptionsInTheOrderGiven) {
  const auto request = parse_strategy_request("fsdp:b=2,a=x=y", {"c=", "b=2"});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->options, (OptionList{{"b", "2"}, {"a", "x=y"}, {"c", ""}}));
  EXPECT_EQ(request->text(), "fsdp:b=2,a=x=y,c=");
}

TEST(AStrategyRequest, MayNameAFileAndAStrategyOfIt) {
  const auto request = parse_strategy_request("./lib/libstrata_mine.so#mine:k=v");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->file, "./lib/libstrata_mine.so");
  EXPECT_EQ(request->name, "mine");
  EXPECT_EQ(request->text(), "./lib/libstrata_mine.so#mine:k=v");
  EXPECT_EQ(parse_strategy_request("mine.so")->file, "mine.so");
}

TEST(AStrategyRequest, RefusesWhatIsNoPair) {
  for (const char* text : {"", ":a=1", "fsdp:", "fsdp:a", "fsdp:=1", "fsdp:a=1,", "fsdp:,a=1"}) {
    const auto request = parse_strategy_request(text);
    ASSERT_FALSE(request.ok()) << text;
    EXPECT_THAT(request.status().message(), HasSubstr("HINT:")) << text;
  }
  EXPECT_THAT(parse_strategy_request("fsdp", {"limit"}).status().message(),
              HasSubstr("--set limit: 'limit' is not of the form key=value"));
}

TEST(AStrategyRequest, RefusesTwoValuesForOneKey) {
  EXPECT_THAT(parse_strategy_request("fsdp:a=1", {"a=2"}).status().message(),
              HasSubstr("'a' is given as '1' and as '2'"));
}

strata_capabilities_t everything() {
  strata_capabilities_t can{};
  can.min_world = 1;
  can.flags = ~STRATA_REPLICAS_MAY_DIFFER;
  can.devices = STRATA_DEVICE_BIT(STRATA_DEVICE_CPU);
  can.compute_dtypes = can.reduce_dtypes = STRATA_DTYPE_BIT(STRATA_DTYPE_F32);
  return can;
}

TEST(CapabilityCheck, AcceptsWhatIsThere) {
  StrategyNeeds needs;
  needs.accumulates = needs.has_tied_units = needs.recomputes = needs.infers = true;
  EXPECT_TRUE(check_capabilities("x", everything(), needs).ok());
}

TEST(CapabilityCheck, NamesEverythingThatIsMissingAtOnce) {
  strata_capabilities_t can = everything();
  can.min_world = 2;
  can.flags = STRATA_REPLICAS_MAY_DIFFER;
  StrategyNeeds needs;
  needs.device = STRATA_DEVICE_CUDA;
  needs.compute_dtype = STRATA_DTYPE_BF16;
  needs.reduce_dtype = STRATA_DTYPE_F16;
  needs.accumulate_dtype = STRATA_DTYPE_BF16;
  needs.accumulates = needs.has_tied_units = needs.recomputes = needs.infers = true;
  needs.has_frozen_parameters = needs.may_miss_gradients = needs.needs_equal_replicas = true;
  const Status status = check_capabilities("slow", can, needs);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  for (const char* text :
       {"strategy 'slow'", "1 ranks are asked for, it needs at least 2",
        "device cuda is asked for, it has cpu", "computing in bf16 is asked for, it has f32",
        "reducing in f16 is asked for", "gradients in bf16 are asked for, it has f32",
        "accumulation", "entered more than once", "not trained", "no gradient",
        "activation checkpointing", "forward without backward", "replicas may differ"}) {
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
}

TEST(CapabilityCheck, TakesGradientsIn16BitsWhereTheyAreSaid) {
  strata_capabilities_t can = everything();
  can.struct_size = sizeof(can);
  can.accumulate_dtypes = STRATA_DTYPE_BIT(STRATA_DTYPE_F32) | STRATA_DTYPE_BIT(STRATA_DTYPE_F16);
  StrategyNeeds needs;
  needs.accumulate_dtype = STRATA_DTYPE_F16;
  EXPECT_TRUE(check_capabilities("x", can, needs).ok());
  can.struct_size = STRATA_CAPABILITIES_MIN_SIZE;  // it ends in front of the field
  EXPECT_THAT(check_capabilities("x", can, needs).message(),
              HasSubstr("gradients in f16 are asked for, it has f32"));
}

TEST(CapabilityCheck, KnowsTheMostRanks) {
  strata_capabilities_t can = everything();
  can.max_world = 1;
  StrategyNeeds needs;
  needs.world_size = 2;
  EXPECT_THAT(check_capabilities("alone", can, needs).message(),
              HasSubstr("2 ranks are asked for, it works with at most 1"));
}

TEST(CapabilityCheck, TakesEitherWayToAccumulate) {
  strata_capabilities_t can = everything();
  StrategyNeeds needs;
  needs.accumulates = true;
  for (const uint64_t flag : {STRATA_CAN_NO_SYNC, STRATA_CAN_SYNC_EACH_BATCH}) {
    can.flags = flag;
    EXPECT_TRUE(check_capabilities("x", can, needs).ok());
  }
}

}  // namespace
}  // namespace strata::plugin
