#include "strata/data/word_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "strata/base/check.h"
#include "strata/data/utf8.h"

namespace strata::data {
namespace {

// `S` stands for Unicode's White_Space. PCRE2's own \s also takes U+180E, which left that set with
// Unicode 6.3.
#define S "\\p{Z}\\t-\\r\\x{85}"
constexpr const char* kPattern = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^" S
                                 "\\p{L}\\p{N}]+|[" S "]+(?![^" S "])|[" S "]+";
#undef S

const pcre2_code* compiled_pattern() {
  static const pcre2_code* const code = [] {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* compiled =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
    STRATA_CHECK(compiled != nullptr) << "PCRE2 error " << error << " at " << offset;
    // Where machine code may not be made, PCRE2 interprets the pattern.
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    return compiled;
  }();
  return code;
}

}  // namespace

WordSplitter::WordSplitter(std::string_view text)
    : rest_(text), match_data_(pcre2_match_data_create_from_pattern(compiled_pattern(), nullptr)) {
  STRATA_CHECK(match_data_ != nullptr) << "out of memory for a PCRE2 match";
}

WordSplitter::~WordSplitter() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
}

void WordSplitter::next_run() {
  const size_t valid = valid_utf8_prefix(rest_);
  run_ = rest_.substr(0, valid);
  rest_.remove_prefix(valid);
  position_ = 0;
}

bool WordSplitter::next() {
  if (position_ == run_.size()) {
    if (rest_.empty()) return false;
    next_run();
  }
  if (run_.empty()) {
    size_t broken = 0;
    while (broken < rest_.size()) {
      const Utf8Step step = utf8_step(rest_.substr(broken));
      if (step.is_valid) break;
      broken += step.length;
    }
    word_ = rest_.substr(0, broken);
    rest_.remove_prefix(broken);
    return true;
  }
  auto* match_data = static_cast<pcre2_match_data*>(match_data_);
  const int rc = pcre2_match(compiled_pattern(), reinterpret_cast<PCRE2_SPTR>(run_.data()),
                             run_.size(), position_, PCRE2_NO_UTF_CHECK, match_data, nullptr);
  STRATA_CHECK(rc > 0) << "PCRE2 error " << rc << " at byte " << position_;
  const size_t end = pcre2_get_ovector_pointer(match_data)[1];
  word_ = run_.substr(position_, end - position_);
  position_ = end;
  return true;
}

}  // namespace strata::data
