// Options of strategies: typed values, and messages that help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/sdk/options.h"

namespace strata::sdk {
namespace {

using ::testing::HasSubstr;

const std::vector<OptionInfo> kDeclared = {{"reshard_after_forward", "true", "."},
                                           {"limit_all_gathers", "2", "."},
                                           {"bucket_cap_mb", "25", "."},
                                           {"backward_prefetch", "backward_pre", "."},
                                           {"pool", "64M", "."}};

Options parse(std::vector<strata_option_t> pairs) {
  strata_create_args_t args{};
  args.name = "fsdp";
  args.options = pairs.data();
  args.option_count = static_cast<uint32_t>(pairs.size());
  return Options(args, kDeclared);
}

template <typename Body>
std::string failure(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), STRATA_E_INVALID_ARGUMENT);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(StrategyOptions, HaveTheirDefaults) {
  const Options options = parse({});
  EXPECT_TRUE(options.flag("reshard_after_forward"));
  EXPECT_EQ(options.integer("limit_all_gathers", 1, 64), 2);
  EXPECT_EQ(options.number("bucket_cap_mb", 0, 1e6), 25.0);
  EXPECT_EQ(options.choice("backward_prefetch", {"none", "backward_pre"}), 1u);
  EXPECT_EQ(options.size("pool", 0, UINT64_MAX), 64u << 20);
  EXPECT_EQ(options.text("pool"), "64M");
  EXPECT_FALSE(options.is_given("pool"));
}

TEST(StrategyOptions, TakeTheUsersValues) {
  const Options options = parse({{"bucket_cap_mb", "0.5"}, {"pool", "3KiB"}, {"pool", "3KiB"}});
  EXPECT_EQ(options.number("bucket_cap_mb", 0, 1e6), 0.5);
  EXPECT_EQ(options.size("pool", 0, UINT64_MAX), 3072u);
  EXPECT_TRUE(options.is_given("pool"));
}

TEST(StrategyOptions, KnowEveryWordForYesAndNo) {
  for (const char* word : {"true", "1", "yes", "on", "TRUE"}) {
    EXPECT_TRUE(parse({{"reshard_after_forward", word}}).flag("reshard_after_forward")) << word;
  }
  for (const char* word : {"false", "0", "no", "off", "Off"}) {
    EXPECT_FALSE(parse({{"reshard_after_forward", word}}).flag("reshard_after_forward")) << word;
  }
}

TEST(StrategyOptions, NameTheNearestKeyAndAllKeys) {
  const std::string text = failure([] { parse({{"reshard_after_foward", "false"}}); });
  EXPECT_THAT(text, HasSubstr("fsdp: unknown option 'reshard_after_foward' (= 'false')"));
  EXPECT_THAT(text, HasSubstr("limit_all_gathers, bucket_cap_mb"));
  EXPECT_THAT(text, HasSubstr("HINT: did you mean 'reshard_after_forward'?"));
}

TEST(StrategyOptions, RefuseOneKeyWithTwoValues) {
  EXPECT_THAT(failure([] { parse({{"pool", "1"}, {"pool", "2"}}); }), HasSubstr("given twice"));
}

TEST(StrategyOptions, SayWhatIsAllowed) {
  EXPECT_THAT(
      failure([] {
        parse({{"limit_all_gathers", "0"}}).integer("limit_all_gathers", 1, 8);
      }),
      HasSubstr("fsdp: option 'limit_all_gathers' = '0'; allowed is a whole number from 1 to "
                "8. HINT: the default is limit_all_gathers=2"));
  for (const char* text : {"", "2x", "1.5", "99999999999999999999", " 2"}) {
    EXPECT_THAT(failure([&] {
                  parse({{"limit_all_gathers", text}}).integer("limit_all_gathers", 1, INT64_MAX);
                }),
                HasSubstr("whole number of at least 1"))
        << text;
  }
  EXPECT_THAT(failure([] {
                parse({{"reshard_after_forward", "2"}}).flag("reshard_after_forward");
              }),
              HasSubstr("allowed is true, 1, yes, on, or false"));
  EXPECT_THAT(failure([] {
                parse({{"backward_prefetch", "backward_per"}})
                    .choice("backward_prefetch", {"backward_pre", "backward_post", "none"});
              }),
              HasSubstr("one of backward_pre, backward_post, none (did you mean 'backward_pre'?)"));
  for (const char* text : {"nan", "inf", "x", "-1"}) {
    EXPECT_THAT(failure([&] {
                  parse({{"bucket_cap_mb", text}}).number("bucket_cap_mb", 0, 1000);
                }),
                HasSubstr("a number from 0 to 1000"))
        << text;
  }
  for (const char* text : {"M", "3X", "99999999999G", "-1", "0.5M"}) {
    EXPECT_THAT(failure([&] {
                  parse({{"pool", text}}).size("pool", 1, UINT64_MAX);
                }),
                HasSubstr("a size in bytes"))
        << text;
  }
}

TEST(StrategyOptions, AreDeclaredBeforeTheyAreRead) {
  try {
    (void)parse({}).flag("other");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), STRATA_E_INTERNAL);
  }
}

}  // namespace
}  // namespace strata::sdk
