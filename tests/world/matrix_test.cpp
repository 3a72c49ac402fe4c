// Every strategy on every world with every combination of accumulation, clipping and activation
// checkpointing: the same losses, norms and weights to the last bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/world/tasks.h"
#include "tests/world/trained.h"

namespace strata::tests {
namespace {

enum class Kind { kGpt2Tied, kGpt2Untied, kOdd };

struct Precision {
  const char* name;
  model::UnitDtypes dtypes;
};
constexpr int32_t kF32 = STRATA_DTYPE_F32;
const Precision kFp32 = {"Fp32", {kF32, kF32, kF32}};
const Precision kBf16Mixed = {"Bf16Mixed", {STRATA_DTYPE_BF16, kF32, kF32}};
const Precision kFp16Mixed = {"Fp16Mixed", {STRATA_DTYPE_F16, kF32, kF32}};
// 16 bits on the wire too.
const Precision kBf16Sent = {"Bf16Sent", {STRATA_DTYPE_BF16, STRATA_DTYPE_BF16, kF32}};

struct Row {
  Kind model = Kind::kOdd;
  Precision precision = kFp32;
  int world = 1;

  bool is_fp32() const { return precision.dtypes == kFp32.dtypes; }
};

std::string name_of(const testing::TestParamInfo<Row>& row) {
  const char* const models[] = {"TiedGpt2", "UntiedGpt2", "OddModel"};
  return fmt::format("{}In{}On{}", models[static_cast<int>(row.param.model)],
                     row.param.precision.name, row.param.world);
}

void PrintTo(const Row& row, std::ostream* out) { *out << name_of({row, 0}); }

// One field of the matrix, all strategies together.
struct Cell {
  Row row;
  int accumulation = 1;
  bool clips = false;
  bool recomputes = false;

  std::string text() const {
    return fmt::format("world {}, accumulation {}, {}, {}, precision {}", row.world, accumulation,
                       clips ? "clipped" : "not clipped", recomputes ? "checkpointed" : "plain",
                       row.precision.name);
  }
};

Task task_of(const Row& row, const Division& division, bool clips) {
  Task task = row.model == Kind::kOdd ? odd_task(every_odd_shape(), division)
                                      : gpt2_task(row.model == Kind::kGpt2Tied, division);
  task.dtypes = [dtypes = row.precision.dtypes](int) { return dtypes; };
  if (clips) task.max_grad_norm = 0.02;  // far below the norms of these models
  return task;
}

class Matrix : public testing::TestWithParam<Row> {
 protected:
  static void expect_cell(const Cell& cell) {
    SCOPED_TRACE(cell.text());
    const int world = cell.row.world;
    const Task task = task_of(cell.row, {world, cell.accumulation}, cell.clips);
    const Trained reference =
        train_in_one_process(task, world, {.adds_each_entry = cell.recomputes});
    if (cell.clips) {
      for (const double norm : reference.norms) EXPECT_GT(norm, 2 * task.max_grad_norm);
    }
    Trained first;
    for (const std::string& strategy : strategies_of(world)) {
      const Trained trained = train_on_ranks(task, {strategy, world, cell.recomputes});
      if (first.hash.empty()) first = trained;
      expect_same_bits(trained, first, strategy + " beside the first strategy");
      expect_same_bits(trained, reference, strategy + " beside one process");
    }
    if (!cell.row.is_fp32()) return;  // another division rounds in other places
    // The same rows in one batch of one process.
    const Trained whole = train_in_one_process(task_of(cell.row, {1, 1}, cell.clips), 1);
    expect_close(first, whole, 1e-6, "beside the whole batch");
  }
};

TEST_P(Matrix, HasOneResult) {
  for (const int accumulation : {1, 3}) {
    for (const bool clips : {false, true}) {
      for (const bool recomputes : {false, true}) {
        expect_cell({GetParam(), accumulation, clips, recomputes});
      }
    }
  }
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  const auto add = [&](const Precision& precision, std::initializer_list<Kind> models) {
    for (const Kind model : models) {
      for (int world = 1; world <= 4; ++world) rows.push_back({model, precision, world});
    }
  };
  add(kFp32, {Kind::kGpt2Tied, Kind::kGpt2Untied, Kind::kOdd});
  add(kBf16Mixed, {Kind::kGpt2Tied, Kind::kOdd});
  add(kFp16Mixed, {Kind::kGpt2Tied, Kind::kOdd});
  add(kBf16Sent, {Kind::kOdd});
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Strategies, Matrix, testing::ValuesIn(all_rows()), name_of);

}  // namespace
}  // namespace strata::tests
