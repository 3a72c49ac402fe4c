// STRATA_CHECK: a broken invariant of ours ends the process with place and values.
//
//   STRATA_CHECK(offset % 64 == 0) << "offset " << offset;
#ifndef STRATA_BASE_CHECK_H_
#define STRATA_BASE_CHECK_H_

#include <sstream>

namespace strata::internal {

class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* file, int line);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

}  // namespace strata::internal

#define STRATA_CHECK(condition) \
  if (condition) [[likely]] {   \
  } else                        \
    ::strata::internal::CheckFailure(#condition, __FILE__, __LINE__).stream()

#endif  // STRATA_BASE_CHECK_H_
