#include "strata/ccl_cpu/reduce.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <string_view>

#include "strata/abi/strategy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata::ccl {
namespace {

// A block of results stays in the first-level cache until it is in every target.
constexpr size_t kBlockElements = 1024;

struct Loops {
  // `offset` counts elements from the start of the sources; the target is the block itself.
  using Block = void (*)(char* target, const char* const* sources, uint32_t source_count,
                         size_t offset, size_t count);
  using Row = std::array<Block, 3>;
  std::array<Row, 7> by_dtype;
};

namespace baseline {
#include "strata/ccl_cpu/reduce_loops.inc"
}  // namespace baseline

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
#include "strata/ccl_cpu/reduce_loops.inc"
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")
namespace avx512 {
#include "strata/ccl_cpu/reduce_loops.inc"
}  // namespace avx512
#pragma GCC pop_options
#define STRATA_CCL_VECTOR_LEVELS 1
#endif

struct Level {
  const char* name;
  const Loops* loops;
};

Level best_level(std::string_view limit) {
#if defined(STRATA_CCL_VECTOR_LEVELS)
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (has_avx512 && limit != "avx2" && limit != "baseline") return {"avx512", &avx512::kLoops};
  if (__builtin_cpu_supports("avx2") && limit != "baseline") return {"avx2", &avx2::kLoops};
#endif
  return {"baseline", &baseline::kLoops};
}

Level& level() {
  static Level chosen = best_level("");
  return chosen;
}

#if defined(__x86_64__)
// Whole cache lines of the target are written past the caches.
void copy_past_caches(char* target, const char* source, size_t bytes) {
  const size_t head = std::min(bytes, (64 - reinterpret_cast<uintptr_t>(target) % 64) % 64);
  std::memcpy(target, source, head);
  target += head, source += head, bytes -= head;
  for (; bytes >= 64; target += 64, source += 64, bytes -= 64) {
    const auto* from = reinterpret_cast<const __m128i*>(source);
    auto* to = reinterpret_cast<__m128i*>(target);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(target, source, bytes);
}
// What was written past the caches is seen by others before what is written from now on.
void end_bypass() { _mm_sfence(); }
#else
void copy_past_caches(char* target, const char* source, size_t bytes) {
  std::memcpy(target, source, bytes);
}
void end_bypass() {}
#endif

void copy_lines(char* target, const char* source, size_t bytes, Caching caching) {
  if (caching == Caching::kBypass) {
    copy_past_caches(target, source, bytes);
  } else if (bytes != 0) {
    std::memcpy(target, source, bytes);
  }
}

}  // namespace

size_t element_size(int32_t dtype) {
  switch (dtype) {
    case STRATA_DTYPE_F64:
    case STRATA_DTYPE_I64: return 8;
    case STRATA_DTYPE_F32:
    case STRATA_DTYPE_I32: return 4;
    case STRATA_DTYPE_BF16:
    case STRATA_DTYPE_F16: return 2;
    case STRATA_DTYPE_U8: return 1;
    default: return 0;
  }
}

void copy(void* target, const void* source, size_t bytes, Caching caching) {
  copy_lines(static_cast<char*>(target), static_cast<const char*>(source), bytes, caching);
  if (caching == Caching::kBypass) end_bypass();
}

void reduce(const Reduction& r) {
  static_assert(STRATA_DTYPE_F32 == 1 && STRATA_DTYPE_BF16 == 2 && STRATA_DTYPE_F16 == 3 &&
                STRATA_DTYPE_F64 == 4 && STRATA_DTYPE_I64 == 5 && STRATA_DTYPE_I32 == 6 &&
                STRATA_DTYPE_U8 == 7);
  static_assert(STRATA_REDUCE_SUM == 1 && STRATA_REDUCE_MIN == 2 && STRATA_REDUCE_MAX == 3);
  const size_t bytes_each = element_size(r.dtype);
  const Loops::Block reduce_block = level().loops->by_dtype[r.dtype - 1][r.op - 1];
  const auto* sources = reinterpret_cast<const char* const*>(r.sources);
  // A target that was just read is in the caches already: blocks are computed into it. If all
  // targets are written past the caches, they are computed into a block that stays there.
  const auto is_in_cache = [&](const Target& target) {
    return target.caching == Caching::kKeep || std::find(r.sources, r.sources + r.source_count,
                                                         target.data) != r.sources + r.source_count;
  };
  const Target* const end = r.targets + r.target_count;
  const Target* const direct = std::find_if(r.targets, end, is_in_cache);

  alignas(64) char block[kBlockElements * 8];
  for (size_t begin = 0; begin < r.count; begin += kBlockElements) {
    const size_t count = std::min(kBlockElements, r.count - begin);
    const size_t skip = begin * bytes_each;
    char* const results = direct != end ? static_cast<char*>(direct->data) + skip : block;
    reduce_block(results, sources, r.source_count, begin, count);
    // Targets may be sources: they are written when the block has been read.
    for (const Target* target = r.targets; target != end; ++target) {
      if (target == direct) continue;
      copy_lines(static_cast<char*>(target->data) + skip, results, count * bytes_each,
                 is_in_cache(*target) ? Caching::kKeep : Caching::kBypass);
    }
  }
  end_bypass();
}

const char* vector_level() { return level().name; }

bool limit_vector_level(const char* limit) {
  const std::string_view wanted = limit == nullptr ? "" : limit;
  level() = best_level(wanted);
  return wanted.empty() || wanted == level().name;
}

}  // namespace strata::ccl
