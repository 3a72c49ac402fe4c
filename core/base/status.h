// Status and Result<T>: how functions of core/ say that they could not do what was asked.
//
// User mistakes and faults of the world are a Status; broken invariants are a STRATA_CHECK
// (base/check.h). The text has values, place and a hint:
//   data: 'corpus.txt' has 12 tokens, fewer than one sequence of 128. HINT: use a longer text or
//   --sequence-length 8
#ifndef STRATA_BASE_STATUS_H_
#define STRATA_BASE_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "strata/base/check.h"

namespace strata {

// The same numbers as STRATA_E_* of abi/types.h; base stands below abi's users and repeats them
// (tested for equality).
enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kUnsupported = 2,
  kOutOfMemory = 3,
  kTimeout = 4,
  kAborted = 5,
  kPeerLost = 6,
  kState = 7,
  kIo = 8,
  kNotFound = 9,
  kInternal = 10,
};

// For example "out of memory".
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same status with "context: " in front of its message.
  Status with_context(const std::string& context) const {
    return ok() ? *this : Status(code_, context + ": " + message_);
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
inline Status unsupported(std::string m) { return {Code::kUnsupported, std::move(m)}; }
inline Status out_of_memory(std::string m) { return {Code::kOutOfMemory, std::move(m)}; }
inline Status timeout(std::string m) { return {Code::kTimeout, std::move(m)}; }
inline Status aborted(std::string m) { return {Code::kAborted, std::move(m)}; }
inline Status peer_lost(std::string m) { return {Code::kPeerLost, std::move(m)}; }
inline Status wrong_state(std::string m) { return {Code::kState, std::move(m)}; }
inline Status io_error(std::string m) { return {Code::kIo, std::move(m)}; }
inline Status not_found(std::string m) { return {Code::kNotFound, std::move(m)}; }
inline Status internal_error(std::string m) { return {Code::kInternal, std::move(m)}; }

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    STRATA_CHECK(!status_.ok()) << "a Result without a value needs a failing Status";
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & {
    STRATA_CHECK(ok()) << status_.message();
    return *value_;
  }
  const T& value() const& {
    STRATA_CHECK(ok()) << status_.message();
    return *value_;
  }
  T&& value() && {
    STRATA_CHECK(ok()) << status_.message();
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

// Carries a Status through code that unwinds (LibTorch's autograd); caught where that code was
// entered.
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

}  // namespace strata

#define STRATA_CONCAT_INNER(a, b) a##b
#define STRATA_CONCAT(a, b) STRATA_CONCAT_INNER(a, b)

// Returns the Status of `expr` from the enclosing function if it is not ok.
#define STRATA_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::strata::Status strata_status_ = (expr);        \
    if (!strata_status_.ok()) return strata_status_; \
  } while (false)

// `STRATA_ASSIGN_OR_RETURN(auto x, f());` takes the value of a Result, or returns its Status.
#define STRATA_ASSIGN_OR_RETURN(lhs, expr) \
  STRATA_ASSIGN_OR_RETURN_IMPL(STRATA_CONCAT(strata_result_, __LINE__), lhs, expr)
#define STRATA_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return result.status();             \
  lhs = std::move(result).value()

#endif  // STRATA_BASE_STATUS_H_
