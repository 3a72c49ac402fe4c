// A key-value store that all ranks share: how ranks find each other before any collective exists.
#ifndef STRATA_BASE_STORE_H_
#define STRATA_BASE_STORE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "strata/base/status.h"

namespace strata {

class Store {
 public:
  virtual ~Store() = default;
  // Sets `key`, which may be set again. Thread-safe, as all of these.
  virtual Status set(const std::string& key, const std::string& value) = 0;
  // Waits for `key`. On a time-out the message names the key and the time waited.
  virtual Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds to a counter that starts at 0; its value after that.
  virtual Result<int64_t> add(const std::string& key, int64_t delta) = 0;
};

// For ranks that are threads of one process, and for one rank.
class InProcessStore : public Store {
 public:
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  Result<int64_t> add(const std::string& key, int64_t delta) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace strata

#endif  // STRATA_BASE_STORE_H_
