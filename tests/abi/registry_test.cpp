// Which plugin a user means: places in order, files by name, every strategy of a library, aliases.
#include "strata/plugin/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/abi/fake_host.h"

namespace strata::plugin {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Registry : public ::testing::Test {
 protected:
  Registry() {
    root_ = fs::temp_directory_path() / ("strata_registry_test_" + std::to_string(getpid()));
    first_ = root_ / "first";
    second_ = root_ / "second";
    fs::create_directories(first_);
    fs::create_directories(second_);
  }
  ~Registry() override { fs::remove_all(root_); }

  std::string install(const fs::path& place, const std::string& built, std::string name = "") {
    if (name.empty()) name = built;
    const fs::path to = place / ("libstrata_" + name + ".so");
    fs::copy_file(std::string(STRATA_TEST_PLUGINS) + "/libstrata_" + built + ".so", to);
    return to.string();
  }
  PluginRegistry registry() {
    return {host_.offer(),
            {{first_.string(), "--plugin-path", true}, {second_.string(), "STRATA_PLUGIN_PATH"}},
            Closing::kAtEnd};
  }
  Result<ResolvedStrategy> find(const std::string& text) {
    return registry().find(*parse_strategy_request(text));
  }
  std::string failure(const std::string& text) {
    const auto result = find(text);
    return result.ok() ? "found in " + result->library->path() : result.status().message();
  }

  test::FakeHost host_;
  fs::path root_, first_, second_;
};

TEST_F(Registry, FindsTheFileOfTheName) {
  const std::string file = install(second_, "plain_c");
  const auto found = find("plain_c");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->library->path(), file);
  EXPECT_EQ(found->name, "plain_c");
  EXPECT_EQ(found->message, "");
}

TEST_F(Registry, FindsAStrategyInALibraryOfAnotherName) {
  const std::string file = install(second_, "test_sdk");
  const auto found = find("thrower_alone");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->library->path(), file);
}

TEST_F(Registry, PrefersTheEarlierPlace) {
  install(second_, "plain_c");
  const std::string file = install(first_, "same_name", "zzz");
  EXPECT_EQ(find("plain_c")->library->path(), file);
}

TEST_F(Registry, TakesAnAliasWithItsOptionsAndSaysSo) {
  install(first_, "test_sdk");
  const auto found = find("throw_errors:throws=int");
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->name, "thrower");
  EXPECT_EQ(found->options, (OptionList{{"throws", "int"}, {"bucket_cap_mb", "7"}}));
  EXPECT_THAT(found->message,
              HasSubstr("strategy 'throw_errors' is 'thrower' with throws=error,bucket_cap_mb=7"));
  EXPECT_THAT(found->message, HasSubstr("with your options: throws=int,bucket_cap_mb=7"));
}

TEST_F(Registry, NamesNearestAndAllNamesAndAllPlacesForAnUnknownOne) {
  const std::string plain = install(first_, "plain_c");
  const std::string sdk = install(second_, "test_sdk");
  const std::string bad = install(second_, "bad_magic");
  const std::string text = failure("plane_c");
  for (const std::string& part :
       {std::string("no strategy 'plane_c'; did you mean 'plain_c'?"), "plain_c (" + plain + ")",
        "thrower (" + sdk + ")", "thrower_alone (" + sdk + ")", bad,
        first_.string() + " (--plugin-path)", second_.string() + " (STRATA_PLUGIN_PATH)",
        std::string("HINT: --strategy plain_c")}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(Registry, EndsTheRunWhenTheNamedFileDoesNotLoad) {
  const std::string bad = install(first_, "bad_magic", "plain_c");
  install(second_, "plain_c");  // would do, and is not taken in silence
  const std::string text = failure("plain_c");
  EXPECT_THAT(text, HasSubstr(bad));
  EXPECT_THAT(text, HasSubstr("magic is"));
  EXPECT_THAT(text, HasSubstr(second_.string()));
}

TEST_F(Registry, IsNotStoppedByAStrangersFault) {
  install(first_, "bad_magic");
  install(second_, "plain_c");
  EXPECT_TRUE(find("plain_c").ok());
}

TEST_F(Registry, RefusesTwoLibrariesOfOnePlaceWithOneName) {
  const std::string a = install(first_, "plain_c", "a");
  const std::string b = install(first_, "same_name", "b");
  const std::string text = failure("plain_c");
  EXPECT_THAT(text, HasSubstr("both '" + a + "' and '" + b + "' have it"));
}

TEST_F(Registry, RefusesASecondLibraryOfTheSameId) {
  install(first_, "plain_c", "a");
  install(second_, "same_id", "b");
  PluginRegistry registry = this->registry();
  const auto& all = registry.list();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].status.ok());
  EXPECT_THAT(all[1].status.message(), HasSubstr("has the id 'strata.test.plain_c' of"));
}

TEST_F(Registry, ListsWhatDoesNotLoadToo) {
  install(first_, "plain_c");
  install(first_, "bad_refuses");
  std::ofstream(first_ / "README") << "not a plugin";
  PluginRegistry registry = this->registry();
  const auto& all = registry.list();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_FALSE(all[0].status.ok());
  EXPECT_NE(all[1].library, nullptr);
  EXPECT_EQ(all[1].origin, "--plugin-path");
}

TEST_F(Registry, TakesAFileThatTheUserNames) {
  const std::string file = install(root_, "test_sdk");
  EXPECT_EQ(find(file + "#thrower_alone")->name, "thrower_alone");
  EXPECT_THAT(failure(file), HasSubstr("holds several strategies: thrower, thrower_alone"));
  EXPECT_THAT(failure(file + "#throwr"), HasSubstr(file + "#thrower"));
  const std::string plain = install(root_, "plain_c");
  EXPECT_EQ(find(plain)->name, "plain_c");
}

TEST_F(Registry, RefusesAPlaceOfTheUsersThatIsNotThere) {
  fs::remove_all(first_);
  install(second_, "plain_c");
  EXPECT_THAT(failure("plain_c"),
              HasSubstr("'" + first_.string() + "' (--plugin-path) is not there"));
}

TEST_F(Registry, SearchesFlagsThenVariableThenBesideTheExecutable) {
  ASSERT_EQ(setenv("STRATA_PLUGIN_PATH", "/c:/d", 1), 0);
  const std::vector<SearchPlace> places = search_places({"/a:/b"});
  unsetenv("STRATA_PLUGIN_PATH");
  ASSERT_EQ(places.size(), 5u);
  EXPECT_EQ(places[0].path, "/a");
  EXPECT_EQ(places[1].path, "/b");
  EXPECT_TRUE(places[1].must_be_there);
  EXPECT_EQ(places[2].path, "/c");
  EXPECT_EQ(places[3].origin, "STRATA_PLUGIN_PATH");
  EXPECT_FALSE(places[3].must_be_there);
  EXPECT_THAT(places[4].path, HasSubstr("/lib/strata/plugins"));
}

}  // namespace
}  // namespace strata::plugin
