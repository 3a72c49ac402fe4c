// The loops of optimizers and norms over plain arrays, without LibTorch. Compiled without fused
// multiply-add: an element's bits depend on its values alone, not on the machine's vectors.
#ifndef STRATA_OPTIM_KERNELS_H_
#define STRATA_OPTIM_KERNELS_H_

#include <cstdint>

namespace strata::optim::kernels {

// Numbers of one update, rounded to fp32 once.
struct Rule {
  double learning_rate = 0;
  double factor = 1;  // gradient * factor is g
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double momentum = 0;
  bool nesterov = false;
  // 1 - beta^t
  double correction1 = 1;
  double correction2 = 1;
};

// `numel` is a multiple of 64. `first` and `second` are the states, where there are any.
struct Arrays {
  float* weights = nullptr;
  const float* gradients = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  int64_t numel = 0;
};

// Weights and states are updated; g includes weight_decay * weight in sgd and adagrad.
void sgd(const Rule& rule, const Arrays& arrays);           // no state
void sgd_momentum(const Rule& rule, const Arrays& arrays);  // first: the momentum
void adagrad(const Rule& rule, const Arrays& arrays);       // first: the sum of squares
void lion(const Rule& rule, const Arrays& arrays);          // first: the momentum

// LAMB: both moments; then the direction that they give, which no longer needs the gradient.
void lamb_moments(const Rule& rule, const Arrays& arrays);
void lamb_direction(const Rule& rule, const Arrays& arrays, float* direction);

// Adafactor without factors: first = beta2 * first + (1 - beta2) * (g^2 + epsilon); then the
// direction g / sqrt(first).
void adafactor_moment(const Rule& rule, const Arrays& arrays);
void adafactor_direction(const Rule& rule, const Arrays& arrays, float* direction);

// A part of a row under Adafactor, of any length: value * factor * (of_row * of_columns[i]).
void scale_by(const float* values, const float* of_columns, int64_t length, float factor,
              float of_row, float* out);

// weights = weights * keep - scale * directions
void apply_direction(float* weights, const float* directions, int64_t numel, double keep,
                     double scale);

// 16-bit floats as fp32, exactly.
void from_bf16(const uint16_t* values, int64_t numel, float* out);
void from_f16(const uint16_t* values, int64_t numel, float* out);

// values = values * factor, cut to [-limit, limit]
void scale_and_clamp(float* values, int64_t numel, double factor, double limit);

// Sums over each block of 64 values, in double and in a fixed order.
void sums_of_squares(const float* values, int64_t blocks, double* sums);
void sums_of_magnitudes(const float* values, int64_t blocks, double* sums);
// Of (|value| / largest)^power. REQUIRES: largest > 0 and finite.
void sums_of_powers(const float* values, int64_t blocks, double largest, double power,
                    double* sums);

// The largest magnitude; infinity if a value is not finite. `numel` is a multiple of 64.
double largest_magnitude(const float* values, int64_t numel);

bool all_are_finite(const float* values, int64_t numel);

}  // namespace strata::optim::kernels

#endif  // STRATA_OPTIM_KERNELS_H_
