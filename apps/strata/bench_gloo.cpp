#include "apps/strata/bench_gloo.h"

#define USE_C10D_GLOO
#include <ATen/ops/from_blob.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

namespace strata::apps {
namespace {

at::Tensor view_of(const float* data, size_t count) {
  return at::from_blob(const_cast<float*>(data), {static_cast<int64_t>(count)}, at::kFloat);
}

class Gloo final : public GlooRival {
 public:
  Gloo(c10::intrusive_ptr<c10d::Backend> group, int size) : group_(std::move(group)), size_(size) {}

  void all_reduce(float* data, size_t count) override {
    std::vector<at::Tensor> tensors = {view_of(data, count)};
    group_->allreduce(tensors)->wait();
  }
  void all_gather(const float* send, float* receive, size_t count) override {
    at::Tensor out = view_of(receive, count * static_cast<size_t>(size_));
    at::Tensor in = view_of(send, count);
    group_->_allgather_base(out, in)->wait();
  }
  void reduce_scatter(const float* send, float* receive, size_t count) override {
    at::Tensor out = view_of(receive, count);
    at::Tensor in = view_of(send, count * static_cast<size_t>(size_));
    group_->_reduce_scatter_base(out, in)->wait();
  }

 private:
  c10::intrusive_ptr<c10d::Backend> group_;
  const int size_;
};

// A file that ranks meet over; its name goes through the store.
Result<std::string> meeting_file(const World& world, Store& store,
                                 std::chrono::milliseconds timeout) {
  if (world.rank != 0) return store.get("bench/gloo/file", timeout);
  char name[] = "/tmp/strata-gloo-XXXXXX";
  const int fd = ::mkstemp(name);
  if (fd < 0) return io_error("bench: no temporary file can be made in /tmp");
  ::close(fd);
  STRATA_RETURN_IF_ERROR(store.set("bench/gloo/file", name));
  return std::string(name);
}

}  // namespace

Result<std::unique_ptr<GlooRival>> GlooRival::create(const World& world, Store& store,
                                                     std::chrono::milliseconds timeout) {
  STRATA_ASSIGN_OR_RETURN(const std::string file, meeting_file(world, store, timeout));
  try {
    auto meeting = c10::make_intrusive<c10d::FileStore>(file, world.size);
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(meeting, world.rank, world.size,
                                                             std::move(options));
    return std::unique_ptr<GlooRival>(new Gloo(std::move(group), world.size));
  } catch (const std::exception& e) {
    return io_error(std::string("bench: Gloo does not start: ") + e.what());
  }
}

}  // namespace strata::apps
