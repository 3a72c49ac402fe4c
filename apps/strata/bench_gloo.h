// The rival of `strata bench comm`: LibTorch's process group over Gloo.
#ifndef STRATA_APPS_BENCH_GLOO_H_
#define STRATA_APPS_BENCH_GLOO_H_

#include <chrono>
#include <cstddef>
#include <memory>

#include "strata/base/status.h"
#include "strata/base/store.h"
#include "strata/base/world.h"

namespace strata::apps {

// Blocking collectives over floats. All throw what LibTorch throws.
class GlooRival {
 public:
  virtual ~GlooRival() = default;
  // Connects over the loop-back interface. [collective] kIo, kTimeout
  static Result<std::unique_ptr<GlooRival>> create(const World& world, Store& store,
                                                   std::chrono::milliseconds timeout);

  virtual void all_reduce(float* data, size_t count) = 0;
  // `count` floats from each rank.
  virtual void all_gather(const float* send, float* receive, size_t count) = 0;
  // `count` floats for each rank.
  virtual void reduce_scatter(const float* send, float* receive, size_t count) = 0;
};

}  // namespace strata::apps

#endif  // STRATA_APPS_BENCH_GLOO_H_
