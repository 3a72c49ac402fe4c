#include "strata/optim/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STRATA_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define STRATA_CLONES
#endif

namespace strata::optim::kernels {
namespace {

constexpr int64_t kBlock = 64;
constexpr int64_t kLanes = 8;

// Eight running sums, then a tree: the compiler's vectors do not change the order.
template <typename Term>
[[gnu::always_inline]] inline double block_sum(const float* values, Term term) {
  double lanes[kLanes] = {};
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += term(static_cast<double>(values[i + lane]));
    }
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

uint32_t magnitude_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits & 0x7FFFFFFFU;
}

float from_bits(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr uint32_t kInfinityBits = 0x7F800000U;

}  // namespace

STRATA_CLONES void sgd(const Rule& rule, const Arrays& a) {
  const auto factor = static_cast<float>(rule.factor);
  const auto decay = static_cast<float>(rule.weight_decay);
  const auto rate = static_cast<float>(rule.learning_rate);
  for (int64_t i = 0; i < a.numel; ++i) {
    const float g = a.gradients[i] * factor + decay * a.weights[i];
    a.weights[i] -= rate * g;
  }
}

STRATA_CLONES void sgd_momentum(const Rule& rule, const Arrays& a) {
  const auto factor = static_cast<float>(rule.factor);
  const auto decay = static_cast<float>(rule.weight_decay);
  const auto rate = static_cast<float>(rule.learning_rate);
  const auto momentum = static_cast<float>(rule.momentum);
  // Nesterov's step looks ahead: g + momentum * buffer; the plain one is 0 * g + 1 * buffer.
  const float of_gradient = rule.nesterov ? 1.0F : 0.0F;
  const float of_buffer = rule.nesterov ? momentum : 1.0F;
  for (int64_t i = 0; i < a.numel; ++i) {
    const float g = a.gradients[i] * factor + decay * a.weights[i];
    const float buffer = momentum * a.first[i] + g;
    a.first[i] = buffer;
    a.weights[i] -= rate * (of_gradient * g + of_buffer * buffer);
  }
}

STRATA_CLONES void adagrad(const Rule& rule, const Arrays& a) {
  const auto factor = static_cast<float>(rule.factor);
  const auto decay = static_cast<float>(rule.weight_decay);
  const auto rate = static_cast<float>(rule.learning_rate);
  const auto epsilon = static_cast<float>(rule.epsilon);
  for (int64_t i = 0; i < a.numel; ++i) {
    const float g = a.gradients[i] * factor + decay * a.weights[i];
    const float sum = a.first[i] + g * g;
    a.first[i] = sum;
    a.weights[i] -= rate * (g / (std::sqrt(sum) + epsilon));
  }
}

STRATA_CLONES void lion(const Rule& rule, const Arrays& a) {
  const auto factor = static_cast<float>(rule.factor);
  const auto keep = static_cast<float>(1 - rule.learning_rate * rule.weight_decay);
  const auto rate = static_cast<float>(rule.learning_rate);
  const auto beta1 = static_cast<float>(rule.beta1);
  const auto rest1 = static_cast<float>(1 - rule.beta1);
  const auto beta2 = static_cast<float>(rule.beta2);
  const auto rest2 = static_cast<float>(1 - rule.beta2);
  for (int64_t i = 0; i < a.numel; ++i) {
    const float g = a.gradients[i] * factor;
    const float mix = beta1 * a.first[i] + rest1 * g;
    const float sign = (mix > 0 ? 1.0F : 0.0F) - (mix < 0 ? 1.0F : 0.0F);
    a.weights[i] = a.weights[i] * keep - rate * sign;
    a.first[i] = beta2 * a.first[i] + rest2 * g;
  }
}

STRATA_CLONES void lamb_moments(const Rule& rule, const Arrays& a) {
  const auto factor = static_cast<float>(rule.factor);
  const auto beta1 = static_cast<float>(rule.beta1);
  const auto rest1 = static_cast<float>(1 - rule.beta1);
  const auto beta2 = static_cast<float>(rule.beta2);
  const auto rest2 = static_cast<float>(1 - rule.beta2);
  for (int64_t i = 0; i < a.numel; ++i) {
    const float g = a.gradients[i] * factor;
    a.first[i] = beta1 * a.first[i] + rest1 * g;
    a.second[i] = beta2 * a.second[i] + rest2 * (g * g);
  }
}

STRATA_CLONES void lamb_direction(const Rule& rule, const Arrays& a, float* direction) {
  const auto decay = static_cast<float>(rule.weight_decay);
  const auto epsilon = static_cast<float>(rule.epsilon);
  const auto correction1 = static_cast<float>(rule.correction1);
  const auto correction2 = static_cast<float>(rule.correction2);
  for (int64_t i = 0; i < a.numel; ++i) {
    const float m = a.first[i] / correction1;
    const float v = a.second[i] / correction2;
    direction[i] = m / (std::sqrt(v) + epsilon) + decay * a.weights[i];
  }
}

STRATA_CLONES void adafactor_moment(const Rule& rule, const Arrays& a) {
  const auto factor = static_cast<float>(rule.factor);
  const auto epsilon = static_cast<float>(rule.epsilon);
  const auto beta2 = static_cast<float>(rule.beta2);
  const auto rest2 = static_cast<float>(1 - rule.beta2);
  for (int64_t i = 0; i < a.numel; ++i) {
    const float g = a.gradients[i] * factor;
    a.first[i] = beta2 * a.first[i] + rest2 * (g * g + epsilon);
  }
}

STRATA_CLONES void adafactor_direction(const Rule& rule, const Arrays& a, float* direction) {
  const auto factor = static_cast<float>(rule.factor);
  for (int64_t i = 0; i < a.numel; ++i) {
    direction[i] = a.gradients[i] * factor / std::sqrt(a.first[i]);
  }
}

STRATA_CLONES void scale_by(const float* values, const float* of_columns, int64_t length,
                            float factor, float of_row, float* out) {
  for (int64_t i = 0; i < length; ++i) out[i] = (values[i] * factor) * (of_row * of_columns[i]);
}

STRATA_CLONES void apply_direction(float* weights, const float* directions, int64_t numel,
                                   double keep, double scale) {
  const auto keep_f = static_cast<float>(keep);
  const auto scale_f = static_cast<float>(scale);
  for (int64_t i = 0; i < numel; ++i) {
    weights[i] = weights[i] * keep_f - scale_f * directions[i];
  }
}

STRATA_CLONES void from_bf16(const uint16_t* values, int64_t numel, float* out) {
  for (int64_t i = 0; i < numel; ++i) out[i] = from_bits(uint32_t{values[i]} << 16);
}

// Five bits of exponent become eight: as fp32 the magnitude is 2^112 too small, subnormals
// included.
STRATA_CLONES void from_f16(const uint16_t* values, int64_t numel, float* out) {
  constexpr float kScale = 0x1p112F;
  for (int64_t i = 0; i < numel; ++i) {
    const uint32_t sign = (uint32_t{values[i]} & 0x8000U) << 16;
    const uint32_t magnitude = (uint32_t{values[i]} & 0x7FFFU) << 13;
    const float finite = from_bits(magnitude) * kScale;
    const float other = from_bits(magnitude | kInfinityBits);  // infinity or NaN
    out[i] = from_bits(sign | magnitude_bits(magnitude < (0x7C00U << 13) ? finite : other));
  }
}

STRATA_CLONES void scale_and_clamp(float* values, int64_t numel, double factor, double limit) {
  const auto factor_f = static_cast<float>(factor);
  const auto limit_f = static_cast<float>(limit);
  for (int64_t i = 0; i < numel; ++i) {
    values[i] = std::min(std::max(values[i] * factor_f, -limit_f), limit_f);
  }
}

STRATA_CLONES void sums_of_squares(const float* values, int64_t blocks, double* sums) {
  for (int64_t b = 0; b < blocks; ++b) {
    sums[b] = block_sum(values + b * kBlock, [](double value) { return value * value; });
  }
}

STRATA_CLONES void sums_of_magnitudes(const float* values, int64_t blocks, double* sums) {
  for (int64_t b = 0; b < blocks; ++b) {
    sums[b] = block_sum(values + b * kBlock, [](double value) { return std::fabs(value); });
  }
}

void sums_of_powers(const float* values, int64_t blocks, double largest, double power,
                    double* sums) {
  for (int64_t b = 0; b < blocks; ++b) {
    const float* const block = values + b * kBlock;
    if (power == 3) {
      sums[b] = block_sum(block, [&](double value) {
        const double part = std::fabs(value) / largest;
        return part * part * part;
      });
    } else {
      sums[b] = block_sum(
          block, [&](double value) { return std::pow(std::fabs(value) / largest, power); });
    }
  }
}

// Magnitudes of floats are ordered like their bits, and what is not finite is above all that is.
STRATA_CLONES double largest_magnitude(const float* values, int64_t numel) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < numel; ++i) largest = std::max(largest, magnitude_bits(values[i]));
  if (largest >= kInfinityBits) return std::numeric_limits<double>::infinity();
  return from_bits(largest);
}

STRATA_CLONES bool all_are_finite(const float* values, int64_t numel) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < numel; ++i) largest = std::max(largest, magnitude_bits(values[i]));
  return largest < kInfinityBits;
}

}  // namespace strata::optim::kernels
