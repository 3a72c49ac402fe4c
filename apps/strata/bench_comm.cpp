#include "apps/strata/bench_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "apps/strata/bench_gloo.h"
#include "apps/strata/command.h"
#include "strata/base/text.h"
#include "strata/formats/json.h"
#include "strata/sdk/nccl_api.h"
#include "strata/sdk/strategy.h"

namespace strata::apps {
namespace {

namespace nccl = sdk::nccl;
using Clock = std::chrono::steady_clock;
using formats::Json;

// A size is repeated no longer than about this, by everybody together.
constexpr double kSecondsPerSize = 4;
constexpr int64_t kFewestRepetitions = 5;

enum class Kind { kAllReduce, kAllGather, kReduceScatter };
constexpr Kind kKinds[] = {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter};

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce: return "all_reduce";
    case Kind::kAllGather: return "all_gather";
    case Kind::kReduceScatter: return "reduce_scatter";
  }
  return "";
}

struct Row {
  Kind kind = Kind::kAllReduce;
  uint64_t bytes = 0;
  double registered = 0;  // all in bytes a second
  double staged = 0;
  double gloo = 0;
  double copy = 0;
};

// A communicator and buffers of all three kinds, on this rank.
class Rank {
 public:
  Rank(const BenchCommOptions& options, const World& world)
      : api_(nccl::Api::open(options.library)), world_(world), timeout_(options.timeout) {}
  ~Rank() {
    for (void* memory : {shared_a_, shared_b_}) {
      if (memory != nullptr) api_.mem_free(memory);
    }
    if (comm_ != nullptr) api_.comm_destroy(comm_);
  }
  Status join(Store& store, uint64_t max_bytes);
  Result<Row> measure(Kind kind, uint64_t bytes, int64_t repetitions);
  Result<double> latency();

 private:
  using Body = std::function<nccl::Result()>;
  Status check(nccl::Result result) const;
  nccl::Result run(Kind kind, float* send, float* receive, uint64_t bytes) const;
  void run_gloo(Kind kind, uint64_t bytes);
  Result<double> seconds(const Body& body);

  const nccl::Api& api_;
  const World world_;
  const std::chrono::milliseconds timeout_;
  nccl::Comm comm_ = nullptr;
  std::unique_ptr<GlooRival> gloo_;
  void* shared_a_ = nullptr;
  void* shared_b_ = nullptr;
  std::vector<float> plain_a_;
  std::vector<float> plain_b_;
};

Status Rank::check(nccl::Result result) const {
  nccl::Result error = result;
  if (error == nccl::Result::kSuccess && comm_ != nullptr) api_.comm_get_async_error(comm_, &error);
  if (error == nccl::Result::kSuccess) return {};
  return io_error(fmt::format("bench comm: rank {}: {} ({})", world_.rank,
                              api_.get_last_error(comm_), api_.get_error_string(error)));
}

Status Rank::join(Store& store, uint64_t max_bytes) {
  nccl::UniqueId id{};
  if (world_.rank == 0) {
    STRATA_RETURN_IF_ERROR(check(api_.get_unique_id(&id)));
    STRATA_RETURN_IF_ERROR(store.set("bench/comm/id", std::string(id.internal, sizeof(id))));
  } else {
    STRATA_ASSIGN_OR_RETURN(const std::string bytes, store.get("bench/comm/id", timeout_));
    if (bytes.size() != sizeof(id)) return internal_error("bench comm: the id has another size");
    std::memcpy(&id, bytes.data(), sizeof(id));
  }
  if (api_.strata_ccl_set_timeout != nullptr) {
    api_.strata_ccl_set_timeout(static_cast<uint64_t>(timeout_.count()));
  }
  STRATA_RETURN_IF_ERROR(check(api_.comm_init_rank(&comm_, world_.size, id, world_.rank)));
  STRATA_ASSIGN_OR_RETURN(gloo_, GlooRival::create(world_, store, timeout_));
  STRATA_RETURN_IF_ERROR(check(api_.mem_alloc(&shared_a_, max_bytes)));
  STRATA_RETURN_IF_ERROR(check(api_.mem_alloc(&shared_b_, max_bytes)));
  plain_a_.assign(max_bytes / sizeof(float), 1.0F);
  plain_b_.assign(max_bytes / sizeof(float), 1.0F);
  std::fill_n(static_cast<float*>(shared_a_), max_bytes / sizeof(float), 1.0F);
  std::fill_n(static_cast<float*>(shared_b_), max_bytes / sizeof(float), 1.0F);
  return {};
}

nccl::Result Rank::run(Kind kind, float* send, float* receive, uint64_t bytes) const {
  const size_t all = bytes / sizeof(float);
  const size_t part = all / static_cast<size_t>(world_.size);
  const auto type = nccl::DataType::kFloat32;
  switch (kind) {
    case Kind::kAllReduce:
      return api_.all_reduce(receive, receive, all, type, nccl::Op::kSum, comm_, nullptr);
    case Kind::kAllGather: return api_.all_gather(send, receive, part, type, comm_, nullptr);
    case Kind::kReduceScatter:
      return api_.reduce_scatter(send, receive, part, type, nccl::Op::kSum, comm_, nullptr);
  }
  return nccl::Result::kInvalidArgument;
}

void Rank::run_gloo(Kind kind, uint64_t bytes) {
  const size_t all = bytes / sizeof(float);
  const size_t part = all / static_cast<size_t>(world_.size);
  switch (kind) {
    case Kind::kAllReduce: gloo_->all_reduce(plain_b_.data(), all); break;
    case Kind::kAllGather: gloo_->all_gather(plain_a_.data(), plain_b_.data(), part); break;
    case Kind::kReduceScatter: gloo_->reduce_scatter(plain_a_.data(), plain_b_.data(), part); break;
  }
}

// How long `body` takes when all ranks begin it together.
Result<double> Rank::seconds(const Body& body) {
  int32_t begin = 1;
  STRATA_RETURN_IF_ERROR(check(
      api_.all_reduce(&begin, &begin, 1, nccl::DataType::kInt32, nccl::Op::kMax, comm_, nullptr)));
  const Clock::time_point start = Clock::now();
  const nccl::Result result = body();
  const double time = std::chrono::duration<double>(Clock::now() - start).count();
  STRATA_RETURN_IF_ERROR(check(result));
  return time;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Result<Row> Rank::measure(Kind kind, uint64_t bytes, int64_t repetitions) {
  const auto ok = nccl::Result::kSuccess;
  const Body bodies[] = {
      [&] {
        return run(kind, static_cast<float*>(shared_a_), static_cast<float*>(shared_b_), bytes);
      },
      [&] { return run(kind, plain_a_.data(), plain_b_.data(), bytes); },
      [&] { return run_gloo(kind, bytes), ok; },
      [&] { return std::memcpy(plain_b_.data(), plain_a_.data(), bytes), ok; },
  };
  std::vector<double> times[4];
  // Once for nothing: mappings, connections, page faults. Its length says how often to repeat.
  double once = 0;
  for (const Body& body : bodies) {
    STRATA_ASSIGN_OR_RETURN(const double time, seconds(body));
    once += time;
  }
  STRATA_RETURN_IF_ERROR(check(
      api_.all_reduce(&once, &once, 1, nccl::DataType::kFloat64, nccl::Op::kMax, comm_, nullptr)));
  const auto affordable = static_cast<int64_t>(std::min(kSecondsPerSize / (once + 1e-9), 1e9));
  repetitions = std::clamp(affordable, std::min(kFewestRepetitions, repetitions), repetitions);
  for (int64_t i = 0; i < repetitions; ++i) {
    for (size_t who = 0; who < 4; ++who) {
      STRATA_ASSIGN_OR_RETURN(const double time, seconds(bodies[who]));
      times[who].push_back(time);
    }
    // Sums grow; keep them finite.
    std::fill_n(plain_b_.data(), bytes / sizeof(float), 1.0F);
    std::fill_n(static_cast<float*>(shared_b_), bytes / sizeof(float), 1.0F);
  }
  const auto rate = [&](int who) { return static_cast<double>(bytes) / median(times[who]); };
  return Row{kind, bytes, rate(0), rate(1), rate(2), rate(3)};
}

// Seconds of an all_reduce of 1 KiB: the median over runs of many, one after the other.
Result<double> Rank::latency() {
  constexpr int kRuns = 21;
  constexpr int kInOneRun = 200;
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    STRATA_ASSIGN_OR_RETURN(const double time, seconds([&] {
                              auto result = nccl::Result::kSuccess;
                              for (int i = 0; i < kInOneRun; ++i) {
                                result = this->run(Kind::kAllReduce, nullptr,
                                                   static_cast<float*>(shared_b_), 1024);
                                if (result != nccl::Result::kSuccess) break;
                              }
                              return result;
                            }));
    times.push_back(time / kInOneRun);
    std::fill_n(static_cast<float*>(shared_b_), 256, 1.0F);
  }
  return median(times);
}

Status report(const BenchCommOptions& options, const World& world, const std::vector<Row>& rows,
              double latency) {
  std::vector<std::vector<std::string>> cells = {{"collective", "size", "registered", "staged",
                                                  "Gloo", "copy", "registered/Gloo", "staged/Gloo",
                                                  "registered/copy"}};
  Json json = {{"ranks", world.size}, {"latency_us", latency * 1e6}, {"rows", Json::array()}};
  const auto rate = [](double value) { return fmt::format("{:.2f} GB/s", value / 1e9); };
  for (const Row& row : rows) {
    cells.push_back({name_of(row.kind), text::format_bytes(row.bytes), rate(row.registered),
                     rate(row.staged), rate(row.gloo), rate(row.copy),
                     fmt::format("{:.1f}", row.registered / row.gloo),
                     fmt::format("{:.1f}", row.staged / row.gloo),
                     fmt::format("{:.2f}", row.registered / row.copy)});
    json["rows"].push_back({{"collective", name_of(row.kind)},
                            {"bytes", row.bytes},
                            {"registered_bytes_per_s", row.registered},
                            {"staged_bytes_per_s", row.staged},
                            {"gloo_bytes_per_s", row.gloo},
                            {"copy_bytes_per_s", row.copy}});
  }
  std::fputs(text::format_table(cells).c_str(), stdout);
  std::fputs(
      fmt::format("all_reduce of 1 KiB: {:.2f} us, {} ranks\n", latency * 1e6, world.size).c_str(),
      stdout);
  return options.output.empty() ? Status() : formats::write_json(options.output, json);
}

Status measure_all(const BenchCommOptions& options, const World& world, Store& store) {
  Rank rank(options, world);
  // Every rank's part of a message is whole floats.
  const uint64_t grain = sizeof(float) * static_cast<uint64_t>(world.size);
  const auto whole = [&](uint64_t bytes) { return (bytes + grain - 1) / grain * grain; };
  STRATA_RETURN_IF_ERROR(rank.join(store, std::max<uint64_t>(whole(options.max_bytes), 1024)));
  std::vector<Row> rows;
  for (const Kind kind : kKinds) {
    for (uint64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
      STRATA_ASSIGN_OR_RETURN(const Row row, rank.measure(kind, whole(bytes), options.repetitions));
      rows.push_back(row);
    }
  }
  STRATA_ASSIGN_OR_RETURN(const double latency, rank.latency());
  return world.rank == 0 ? report(options, world, rows, latency) : Status();
}

}  // namespace

Status bench_comm_rank(const BenchCommOptions& options, const World& world, Store& store) {
  try {
    return measure_all(options, world, store);
  } catch (const sdk::Error& e) {
    return Status(static_cast<Code>(e.code()), std::string("bench comm: ") + e.what());
  } catch (const std::exception& e) {
    return io_error(std::string("bench comm: ") + e.what());
  }
}

int run(const config::BenchCommConfig& config) {
  return run_on_ranks(config.placement, [&](const train::Rank& rank) {
    if (rank.store == nullptr) {
      return exit_code_of(
          invalid_argument("bench comm: one rank has nobody to talk to. HINT: --devices 2"), false);
    }
    BenchCommOptions options;
    options.library = train::library_folder() + "/libstrata_ccl_cpu.so";
    options.min_bytes = config.min_bytes;
    options.max_bytes = config.max_bytes;
    options.repetitions = config.repetitions;
    options.output = config.output;
    options.timeout =
        std::chrono::milliseconds(static_cast<int64_t>(config.placement.timeout_s * 1000));
    return exit_code_of(bench_comm_rank(options, rank.world, *rank.store), true);
  });
}

}  // namespace strata::apps
