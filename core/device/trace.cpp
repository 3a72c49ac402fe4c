#include "strata/device/trace.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

namespace strata::device {
namespace {

uint64_t now_nanoseconds() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::string quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

struct Trace::ThreadSpans {
  struct Open {
    const char* name;
    uint64_t begin;
  };
  struct Closed {
    std::array<char, 64> name;  // longer names are cut
    uint64_t begin;
    uint64_t end;
  };

  std::mutex mutex;  // the owning thread records, any thread writes the file
  std::string thread_name;
  int thread_id = 0;
  uint64_t epoch = 0;
  std::vector<Open> open;
  std::vector<Closed> closed;  // a ring once it is full
  size_t next = 0;
};

Trace::Trace(int rank) : rank_(rank), id_(next_id()) {}
Trace::~Trace() = default;

void Trace::enable(bool is_on) {
  epoch_.fetch_add(1, std::memory_order_relaxed);
  is_on_.store(is_on, std::memory_order_release);
}

Trace::ThreadSpans& Trace::of_this_thread() {
  struct Known {
    uint64_t id;
    std::shared_ptr<ThreadSpans> spans;
  };
  thread_local std::vector<Known> known;
  for (const Known& entry : known) {
    if (entry.id == id_) return *entry.spans;
  }
  std::erase_if(known, [](const Known& entry) { return entry.spans.use_count() == 1; });
  auto made = std::make_shared<ThreadSpans>();
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  made->thread_name = name.data();
  made->thread_id = gettid();
  const std::lock_guard lock(mutex_);
  threads_.push_back(made);
  known.push_back({id_, made});
  return *made;
}

void Trace::begin_span(const char* name) {
  ThreadSpans& spans = of_this_thread();
  const uint64_t epoch = epoch_.load(std::memory_order_relaxed);
  if (spans.epoch != epoch) spans.open.clear();
  spans.epoch = epoch;
  spans.open.push_back({name, now_nanoseconds()});
}

void Trace::end_span() {
  ThreadSpans& spans = of_this_thread();
  if (spans.epoch != epoch_.load(std::memory_order_relaxed) || spans.open.empty()) return;
  const ThreadSpans::Open open = spans.open.back();
  spans.open.pop_back();
  ThreadSpans::Closed closed{{}, open.begin, now_nanoseconds()};
  std::snprintf(closed.name.data(), closed.name.size(), "%s", open.name);
  const std::lock_guard lock(spans.mutex);
  if (spans.closed.size() < kSpansPerThread) {
    spans.closed.push_back(closed);
  } else {
    spans.closed[spans.next] = closed;
    spans.next = (spans.next + 1) % kSpansPerThread;
  }
}

Status Trace::write(const std::string& path) const {
  std::ofstream file(path);
  file << fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{0},\"args\":{{\"name\":\"rank {0}\"}}}}",
      rank_);
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<ThreadSpans>& thread : threads_) {
    file << fmt::format(
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}"
        "}",
        rank_, thread->thread_id, quote(thread->thread_name));
    const std::lock_guard thread_lock(thread->mutex);
    for (const ThreadSpans::Closed& span : thread->closed) {
      file << fmt::format(
          ",\n{{\"name\":{},\"ph\":\"X\",\"ts\":{:.3f},\"dur\":{:.3f},\"pid\":{},"
          "\"tid\":{}}}",
          quote(span.name.data()), static_cast<double>(span.begin) / 1e3,
          static_cast<double>(span.end - span.begin) / 1e3, rank_, thread->thread_id);
    }
  }
  file << "\n]}\n";
  file.close();
  if (!file) {
    return io_error(
        fmt::format("device: the trace cannot be written to '{}'. HINT: does the folder "
                    "exist, and may this user write there?",
                    path));
  }
  return {};
}

}  // namespace strata::device
