// `strata bench step` with a played link and a trace.
#include <gmock/gmock.h>

#include "tests/process/command_fixture.h"

namespace strata::tests {
namespace {

using ::testing::HasSubstr;

class BenchTest : public CommandTest {
 protected:
  // Blocks that compute for milliseconds, so that a message can begin under the next one.
  static Args step(const Args& more) {
    Args args = {"bench",
                 "step",
                 "--model",
                 "tiny.json",
                 "--devices",
                 "2",
                 "--sequence-length",
                 "16",
                 "--per-device-train-batch-size",
                 "256",
                 "--skip-steps",
                 "1",
                 "--max-steps",
                 "2"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  struct Span {
    std::string name;
    double begin = 0;
    double end = 0;
    bool begins_in(const Span& other) const { return begin > other.begin && begin < other.end; }
  };

  std::vector<Span> spans(const std::string& file) const {
    std::vector<Span> found;
    const nlohmann::json trace = json(file);
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const double begin = event.at("ts");
      found.push_back({event.at("name"), begin, begin + event.at("dur").get<double>()});
    }
    return found;
  }
};

TEST_F(BenchTest, TheTraceShowsReductionsInsideBackward) {
  succeed(step({"--strategy", "zero2", "--trace-dir", "traces"}));
  for (const char* file : {"traces/trace.rank0.json", "traces/trace.rank1.json"}) {
    const std::vector<Span> all = spans(file);
    Span backward;
    for (const Span& span : all) {
      if (span.name == "backward") backward = span;
    }
    ASSERT_GT(backward.end, backward.begin) << file;
    int asked = 0;
    int begun = 0;
    for (const Span& span : all) {
      if (span.name == "zero2/after_backward/reduce") asked += span.begins_in(backward);
      if (span.name == "zero2 comm") begun += span.begins_in(backward);
    }
    EXPECT_EQ(asked, 3) << file << ": the embeddings and two blocks";
    EXPECT_GE(begun, 1) << file << ": none began before all was computed";
  }
}

TEST_F(BenchTest, APlayedLinkTakesItsTime) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    succeed(step({"--strategy", strategy, "--link-bandwidth", "1MB", "--output", "slow.json"}));
    const nlohmann::json slow = json("slow.json");
    EXPECT_EQ(slow["link_bandwidth"], 1000000);
    EXPECT_GE(slow["min_ms"].get<double>(), 1e3 * slow["sent_bytes_per_step"].get<double>() / 1e6)
        << strategy;
  }
}

TEST_F(BenchTest, RefusesAFolderForTracesThatIsAFile) {
  write("file", "");
  const Ended ended = run(step({"--trace-dir", "file"}));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--trace-dir file: cannot be written"));
}

}  // namespace
}  // namespace strata::tests
