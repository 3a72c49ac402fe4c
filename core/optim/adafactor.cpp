// Adafactor (Shazeer and Stern 2018) without a first moment, as the Hugging Face Trainer uses it:
// the second moments of a matrix are kept as one number a row and one a column.
//
// Those are kept by every rank as a whole (rows + columns numbers a matrix). One step:
//   means of g^2 + 1e-30 over rows and columns of whole parameters, summed over ranks
//   direction u = g / sqrt(row * column / mean of rows); g / sqrt(v) for vectors, v per element
//   rate = lr, or lr * max(1e-3, rms(weights)) with scale_parameter
//   weights -= rate * (u / max(1, rms(u) / clip_threshold) + decay * weights)
#include <algorithm>
#include <cmath>

#include "strata/optim/kernels.h"
#include "strata/optim/matrix_sums.h"
#include "strata/optim/parameter_norms.h"
#include "strata/optim/registry.h"
#include "strata/optim/slices.h"

namespace strata::optim {
namespace {

constexpr double kEpsilon = 1e-30;       // added to squared gradients
constexpr double kSmallestScale = 1e-3;  // of a parameter

// A trainable parameter with factors, on every rank.
struct Factored {
  Matrices matrices;
  float* rows = nullptr;
  float* columns = nullptr;
  // Of a row: 1 / sqrt(row / mean of its matrix's rows); of a column: 1 / sqrt(column).
  std::vector<float> of_rows, of_columns;

  void set_scales() {
    const Matrices& m = matrices;
    of_rows.resize(static_cast<size_t>(m.all_rows()));
    of_columns.resize(static_cast<size_t>(m.all_columns()));
    for (int64_t first = 0; first < m.all_rows(); first += m.rows) {
      double mean = 0;
      for (int64_t r = first; r < first + m.rows; ++r) mean += rows[r];
      mean /= static_cast<double>(m.rows);
      for (int64_t r = first; r < first + m.rows; ++r) {
        of_rows[static_cast<size_t>(r)] = static_cast<float>(1 / std::sqrt(rows[r] / mean));
      }
    }
    for (int64_t c = 0; c < m.all_columns(); ++c) {
      of_columns[static_cast<size_t>(c)] =
          static_cast<float>(1 / std::sqrt(static_cast<double>(columns[c])));
    }
  }
};

class Adafactor final : public Optimizer {
 public:
  Adafactor(const OptimizerOptions& options, const model::ModelSpec& spec)
      : Optimizer(options.name), options_(options), parameters_(spec) {}

  Status lay_out(const OptimizerInput& input) {
    groups_ = input.groups.groups;
    STRATA_ASSIGN_OR_RETURN(slices_, cut_slices(name(), input, Joining::kNothing));
    STRATA_RETURN_IF_ERROR(add_factors(input));
    for (Slice& slice : slices_) {
      const auto unit = static_cast<size_t>(slice.unit);
      const int64_t offset = input.layouts[unit].offsets[slice.parameter];
      const int factored = factored_of_[parameters_.of(slice.unit, slice.parameter)];
      factored_index_.push_back(factored);
      if (factored < 0) {
        StateTensor state{"exp_avg_sq", slice.unit, slice.begin, slice.numel};
        state.is_first_copy = slice.replica == 0;
        STRATA_ASSIGN_OR_RETURN(slice.states[0], add_state(input.allocate, std::move(state)));
      }
      begins_.push_back(slice.begin - offset);
      const int64_t numel = parameters_.numel(parameters_.of(slice.unit, slice.parameter));
      ends_.push_back(std::min(slice.begin - offset + slice.numel, numel));
    }
    return {};
  }

 protected:
  Status update(double learning_rate, const GradientScale& scale, Reducer& reducer) override {
    const double beta2 = 1 - std::pow(static_cast<double>(step_count()), options_.decay_rate);
    STRATA_RETURN_IF_ERROR(update_factors(beta2, scale, reducer));
    update_moments(beta2, scale);
    ParameterNorms weights(parameters_);
    ParameterNorms directions(parameters_);
    for (size_t i = 0; i < slices_.size(); ++i) {
      const Slice& slice = slices_[i];
      directions.add(slice, directions_of(i, scale));
      if (!options_.scale_parameter) continue;
      weights.add(slice, [&](int64_t begin, int64_t, float*) { return slice.master + begin; });
    }
    STRATA_RETURN_IF_ERROR(directions.reduce(name(), "the update", reducer));
    if (options_.scale_parameter) {
      STRATA_RETURN_IF_ERROR(weights.reduce(name(), "the weights", reducer));
    }
    for (size_t i = 0; i < slices_.size(); ++i) {
      const Slice& slice = slices_[i];
      const ParameterGroup& group = groups_[static_cast<size_t>(slice.group)];
      double rate = learning_rate * group.lr_multiplier;
      if (options_.scale_parameter) {
        rate *= std::max(kSmallestScale, weights.root_mean_square_of(slice));
      }
      const double clip =
          std::max(1.0, directions.root_mean_square_of(slice) / options_.clip_threshold);
      apply_directions(slice, directions_of(i, scale), 1 - group.weight_decay * rate, rate / clip);
    }
    return {};
  }

 private:
  // Row and column states of a unit's trainable matrices, one after the other.
  Status add_factors(const OptimizerInput& input) {
    factored_of_.assign(parameters_.size(), -1);
    for (size_t u = 0; u < input.spec.units.size(); ++u) {
      const model::UnitSpec& unit = input.spec.units[u];
      int64_t rows = 0;
      int64_t columns = 0;
      const auto is_factored = [](const model::ParameterSpec& parameter) {
        return parameter.is_trainable && parameter.shape.size() >= 2 && parameter.numel() > 0;
      };
      for (const model::ParameterSpec& parameter : unit.parameters) {
        if (!is_factored(parameter)) continue;
        rows += matrices_of(parameter).all_rows();
        columns += matrices_of(parameter).all_columns();
      }
      if (rows == 0) continue;
      STRATA_ASSIGN_OR_RETURN(float* row, add_whole(input, "exp_avg_sq_row", u, rows));
      STRATA_ASSIGN_OR_RETURN(float* column, add_whole(input, "exp_avg_sq_col", u, columns));
      for (size_t i = 0; i < unit.parameters.size(); ++i) {
        if (!is_factored(unit.parameters[i])) continue;
        const Matrices m = matrices_of(unit.parameters[i]);
        factored_of_[parameters_.of(static_cast<int>(u), i)] = static_cast<int>(factored_.size());
        factored_.push_back({m, row, column, {}, {}});
        matrices_.push_back(m);
        row += m.all_rows();
        column += m.all_columns();
      }
    }
    return {};
  }

  Result<float*> add_whole(const OptimizerInput& input, const char* kind, size_t unit,
                           int64_t numel) {
    StateTensor state{kind, static_cast<int>(unit), 0, numel};
    state.is_whole = true;
    return add_state(input.allocate, std::move(state));
  }

  Status update_factors(double beta2, const GradientScale& scale, Reducer& reducer) {
    std::vector<MatrixPart> parts;
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (factored_index_[i] < 0) continue;
      const Slice& slice = slices_[i];
      const int64_t first = slice.first_block() * 64;
      const int64_t begin = begins_[i] + first;
      const int64_t end = std::min(begins_[i] + slice.last_block() * 64, ends_[i]);
      if (begin >= end) continue;
      const ScaledGradient gradient(slice.gradient.from(first), scale);
      parts.push_back({static_cast<size_t>(factored_index_[i]), begin, end,
                       [gradient](int64_t at, int64_t numel, float* scratch) {
                         return gradient.read(at, numel, scratch);
                       }});
    }
    const auto factor = static_cast<float>(ScaledGradient::factor(scale));
    STRATA_ASSIGN_OR_RETURN(const MatrixMeans means,
                            means_of_squares(matrices_, parts, factor, kEpsilon, reducer));
    const auto mix = [&](float* state, const std::vector<double>& mean) {
      for (size_t i = 0; i < mean.size(); ++i) {
        state[i] =
            static_cast<float>(beta2 * static_cast<double>(state[i]) + (1 - beta2) * mean[i]);
      }
    };
    for (size_t k = 0; k < factored_.size(); ++k) {
      mix(factored_[k].rows, means.rows[k]);
      mix(factored_[k].columns, means.columns[k]);
      factored_[k].set_scales();
    }
    return {};
  }

  void update_moments(double beta2, const GradientScale& scale) {
    kernels::Rule rule;
    rule.factor = ScaledGradient::factor(scale);
    rule.beta2 = beta2;
    rule.epsilon = kEpsilon;
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (factored_index_[i] >= 0) continue;
      for_each_chunk_of(slices_[i], scale, [&](const kernels::Arrays& arrays) {
        kernels::adafactor_moment(rule, arrays);
      });
    }
  }

  // Computed twice, for the norm and for the update: no memory is as long as a slice.
  Values directions_of(size_t index, const GradientScale& scale) const {
    const ScaledGradient gradient(slices_[index].gradient, scale);
    kernels::Rule rule;
    rule.factor = ScaledGradient::factor(scale);
    if (factored_index_[index] < 0) {
      return [this, index, gradient, rule](int64_t begin, int64_t numel, float* scratch) {
        kernels::Arrays arrays = arrays_at(slices_[index], begin, numel);
        arrays.gradients = gradient.read(begin, numel, scratch);
        kernels::adafactor_direction(rule, arrays, scratch);
        return scratch;
      };
    }
    return [this, index, gradient, rule](int64_t begin, int64_t numel, float* scratch) {
      const Factored& f = factored_[static_cast<size_t>(factored_index_[index])];
      const float* const values = gradient.read(begin, numel, scratch);
      const int64_t first = begins_[index] + begin;
      const int64_t last = std::clamp(ends_[index], first, first + numel);
      for_each_row_part(
          f.matrices, first, last, [&](int64_t row, int64_t column, int64_t at, int64_t length) {
            kernels::scale_by(values + (at - first), f.of_columns.data() + column, length,
                              static_cast<float>(rule.factor), f.of_rows[static_cast<size_t>(row)],
                              scratch + (at - first));
          });
      std::fill(scratch + (last - first), scratch + numel, 0.0F);  // padding
      return scratch;
    };
  }

  OptimizerOptions options_;
  ParameterIndex parameters_;
  std::vector<ParameterGroup> groups_;
  std::vector<Slice> slices_;
  std::vector<Matrices> matrices_;  // of factored_
  std::vector<Factored> factored_;
  std::vector<int> factored_of_;  // by parameter: index into factored_, or -1
  // By slice: likewise; its elements [begin, end) of the parameter, padding left out.
  std::vector<int> factored_index_;
  std::vector<int64_t> begins_, ends_;
};

}  // namespace

MadeOptimizer make_adafactor(const OptimizerOptions& options, const OptimizerInput& input) {
  auto adafactor = std::make_unique<Adafactor>(options, input.spec);
  STRATA_RETURN_IF_ERROR(adafactor->lay_out(input));
  return std::unique_ptr<Optimizer>(std::move(adafactor));
}

}  // namespace strata::optim
