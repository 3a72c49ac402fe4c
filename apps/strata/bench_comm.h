// `strata bench comm`, one rank's part: the collectives of the communication library beside Gloo
// and plain copies, in turns, in the same run.
#ifndef STRATA_APPS_BENCH_COMM_H_
#define STRATA_APPS_BENCH_COMM_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "strata/base/status.h"
#include "strata/base/store.h"
#include "strata/base/world.h"

namespace strata::apps {

struct BenchCommOptions {
  std::string library;  // absolute path of libstrata_ccl_cpu.so
  uint64_t min_bytes = 1024;
  uint64_t max_bytes = 64 << 20;
  int64_t repetitions = 20;                   // of each size; large messages take fewer
  std::string output;                         // a JSON file that rank 0 writes; "" for none
  std::chrono::milliseconds timeout{60'000};  // of every wait
};

// Measures and, on rank 0, prints a table. [collective]
//
// A message of S bytes is the buffer of all_reduce, what all_gather receives, what reduce_scatter
// is given; every rate is S / time, the median over repetitions. `copy` is memcpy of S bytes in
// every process at once. all_reduce works in place, the others from buffer to buffer. The latency
// is that of all_reduce of 1 KiB, one after the other.
//
// REQUIRES: at least two ranks.
// Returns   kNotFound, kUnsupported, kTimeout, kIo
Status bench_comm_rank(const BenchCommOptions& options, const World& world, Store& store);

}  // namespace strata::apps

#endif  // STRATA_APPS_BENCH_COMM_H_
