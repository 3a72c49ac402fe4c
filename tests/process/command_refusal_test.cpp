// Requests that cannot be met: exit code 2, one message with the value and a hint, nothing written.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/process/command_fixture.h"

namespace strata::tests {
namespace {

using ::testing::HasSubstr;

class Refusal : public CommandTest {
 protected:
  void refuses(const Args& more, const std::vector<std::string>& words) {
    for (const std::string devices : {"1", "2"}) {
      Args args = more;
      if (std::find(args.begin(), args.end(), "--output-dir") == args.end()) {
        args.insert(args.end(), {"--output-dir", "out"});
      }
      if (std::find(args.begin(), args.end(), "--devices") == args.end()) {
        args.insert(args.end(), {"--devices", devices});
      }
      const Ended ended = run(train("out", args));
      SCOPED_TRACE(devices + " devices: " + ended.err);
      EXPECT_EQ(ended.exit_code, 2);
      EXPECT_EQ(ended.out, "");
      for (const std::string& word : words) EXPECT_THAT(ended.err, HasSubstr(word));
      EXPECT_EQ(count(ended.err, "HINT:"), 1) << "one message";
      EXPECT_EQ(count(ended.err, "strata: rank"), 0) << "the launcher adds nothing";
      EXPECT_FALSE(exists("out")) << "something was written";
    }
  }

  static int count(const std::string& text, const std::string& word) {
    int found = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      ++found;
    }
    return found;
  }

  // A folder with random weights and a tokenizer.
  void make_model_folder() {
    succeed(train("made", {"--max-steps", "1"}));
    succeed({"export", "--checkpoint", "made/latest", "--output-dir", "hf"});
  }
};

TEST_F(Refusal, NamesTheNearestStrategyAndAllThatWereFound) {
  refuses({"--strategy", "fdsp"}, {"'fdsp'", "fsdp", "single", "ddp", "Searched"});
}

TEST_F(Refusal, NamesTheNearestOptionOfAStrategy) {
  refuses({"--strategy", "fsdp:reshard_after_fwd=true"},
          {"'reshard_after_fwd'", "did you mean 'reshard_after_forward'"});
  refuses({"--strategy", "ddp", "--set", "bucket_cap_mb=many"}, {"bucket_cap_mb", "many"});
}

TEST_F(Refusal, OfAnUnknownFlag) {
  refuses({"--learning-rat", "1"}, {"--learning-rat", "--learning-rate"});
}

TEST_F(Refusal, OfAPluginThatIsATextFile) {
  write("libstrata_mine.so", "hello\n");
  refuses({"--strategy", "./libstrata_mine.so"}, {"libstrata_mine.so", "not a shared library"});
  refuses({"--plugin-path", ".", "--strategy", "mine"}, {"libstrata_mine.so", "--plugin-path"});
}

TEST_F(Refusal, OfAnUnknownOptimizerOrSchedule) {
  refuses({"--optim", "adamwt"}, {"--optim adamwt", "did you mean adamw"});
  refuses({"--lr-scheduler-type", "cosinus"}, {"--lr-scheduler-type", "did you mean cosine?"});
}

TEST_F(Refusal, OfParameterGroupsThatMatchNothing) {
  refuses({"--param-group", "attn\\.c_atn:lr=2"},
          {"--param-group 'attn\\.c_atn'", "matches no parameter", "h.0.attn.c_attn."});
  refuses({"--param-group", "ln_(:lr=2"}, {"'ln_(': is not a regular expression"});
}

TEST_F(Refusal, OfACheckpointOfAnotherOptimizer) {
  succeed(train("made", {"--max-steps", "1", "--optim", "sgd"}));
  refuses(
      {"--resume-from-checkpoint", "made/latest"},
      {"made/checkpoint-1' was written by optimizer 'sgd', this run has 'adamw'", "--optim sgd"});
  const Ended other = run(train(
      "out", {"--resume-from-checkpoint", "made/latest", "--optim", "sgd", "--momentum", "0.9"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("has no 'momentum_buffer' of unit"));
  EXPECT_THAT(other.err,
              HasSubstr("HINT: the options of the run that wrote it, such as --momentum"));
}

TEST_F(Refusal, OfMissingAndEmptyData) {
  refuses({"--data", "nowhere.txt"}, {"nowhere.txt"});
  write("empty.txt", "");
  refuses({"--data", "empty.txt"}, {"empty.txt", "empty"});
}

TEST_F(Refusal, OfAModelThatIsNoModel) {
  refuses({"--model", "nowhere"}, {"nowhere"});
  nlohmann::json unknown = config();
  unknown["n_layers"] = 2;
  write("unknown.json", unknown.dump());
  refuses({"--model", "unknown.json"}, {"'n_layers'", "'n_layer'"});
  nlohmann::json odd = config();
  odd["n_embd"] = 33;
  write("odd.json", odd.dump());
  refuses({"--model", "odd.json"}, {"n_embd = 33", "n_head = 2"});
}

TEST_F(Refusal, OfSizesThatAreZeroOrTooLarge) {
  refuses({"--per-device-train-batch-size", "0"}, {"--per-device-train-batch-size 0"});
  refuses({"--sequence-length", "0"}, {"--sequence-length 0"});
  refuses({"--sequence-length", "33"}, {"33", "32 positions"});
}

TEST_F(Refusal, OfMoreRanksThanSamples) {
  make_model_folder();
  write("short.txt", text(4));  // more tokens than one sequence, fewer than three
  refuses({"--data", "short.txt", "--sequence-length", "32", "--devices", "3",
           "--per-device-train-batch-size", "1", "--tokenizer", "hf"},
          {"3 ranks"});
}

TEST_F(Refusal, OfATokenizerWithMoreTokensThanTheModel) {
  make_model_folder();
  nlohmann::json small = config();
  small["vocab_size"] = 280;
  small["bos_token_id"] = small["eos_token_id"] = 279;
  write("small.json", small.dump());
  refuses({"--model", "small.json", "--tokenizer", "hf"}, {"300 tokens", "280"});
}

TEST_F(Refusal, OfAnOutputFolderThatCannotBeWritten) {
  write("file", "x");
  refuses({"--output-dir", "file/out"}, {"file/out"});
  refuses({"--output-dir", "/proc/strata"}, {"/proc/strata"});
}

TEST_F(Refusal, OfTruncatedWeights) {
  make_model_folder();
  std::filesystem::resize_file(path("hf/model.safetensors"), 20'000);
  refuses({"--model", "hf"}, {"hf/model.safetensors", "damaged or cut off"});
}

TEST_F(Refusal, OfACheckpointThatIsNone) {
  refuses({"--resume-from-checkpoint", "nowhere"}, {"nowhere"});
}

TEST_F(Refusal, OfACheckpointOfAModelWithTheSameShapes) {
  succeed(train("made", {"--max-steps", "1"}));
  nlohmann::json other = config();
  other["n_head"] = 4;
  write("other.json", other.dump());
  refuses({"--resume-from-checkpoint", "made/latest", "--model", "other.json"}, {"n_head 2 and 4"});
}

TEST_F(Refusal, OfAModelOfNoMeasure) {
  nlohmann::json deep = config();
  deep["n_layer"] = 100'000;
  write("deep.json", deep.dump());
  refuses({"--model", "deep.json"}, {"n_layer is 100000"});
  const std::string brackets(200'000, '[');
  write("nested.json", "{\"x\":" + brackets + std::string(brackets.size(), ']') + "}");
  refuses({"--model", "nested.json"}, {"nested.json", "100 levels"});
  refuses({"--devices", "1000"}, {"--devices 1000", "256"});
}

TEST_F(Refusal, OfWhatCannotBeGenerated) {
  make_model_folder();
  const auto refuses_to_generate = [&](const Args& more, const std::string& why) {
    Args args = {"generate", "--prompt", "the light"};
    args.insert(args.end(), more.begin(), more.end());
    const Ended ended = run(args);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, HasSubstr(why));
    EXPECT_EQ(count(ended.err, "HINT:"), 1) << ended.err;
  };
  refuses_to_generate({"--model", "hf", "--max-new-tokens", "100"}, "--max-new-tokens 100");
  refuses_to_generate({"--model", "hf", "--temperature", "1e-300"}, "--temperature 1e-300");
  refuses_to_generate({"--model", "made/latest"}, "no weights");
}

}  // namespace
}  // namespace strata::tests
