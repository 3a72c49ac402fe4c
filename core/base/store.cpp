#include "strata/base/store.h"

#include <fmt/format.h>

namespace strata {

Status InProcessStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
  return {};
}

Result<std::string> InProcessStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
    return strata::timeout(
        fmt::format("store: key '{}' was not set within {} ms. HINT: did every rank start?", key,
                    timeout.count()));
  }
  return values_[key];
}

Result<int64_t> InProcessStore::add(const std::string& key, int64_t delta) {
  const std::lock_guard lock(mutex_);
  std::string& value = values_[key];
  const int64_t sum = (value.empty() ? 0 : std::stoll(value)) + delta;
  value = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

}  // namespace strata
