#include "strata/optim/matrix_sums.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace strata::optim {
namespace {

constexpr int kSumBits = 62;

// Where a matrix has its rows and columns in arrays over all matrices: first rows, then columns.
struct Place {
  int64_t rows = 0;
  int64_t columns = 0;
};

std::vector<Place> places_of(std::span<const Matrices> matrices, size_t* size) {
  std::vector<Place> places;
  int64_t at = 0;
  for (const Matrices& m : matrices) {
    places.push_back({at, at + m.all_rows()});
    at += m.all_rows() + m.all_columns();
  }
  *size = static_cast<size_t>(at);
  return places;
}

double term(float value, float factor, double epsilon) {
  const double g = value * factor;
  return g * g + epsilon;
}

// Parts by matrix, so that no two threads add to one row or column.
std::vector<std::vector<MatrixPart>> by_matrix(std::span<const MatrixPart> parts, size_t matrices) {
  std::vector<std::vector<MatrixPart>> out(matrices);
  for (const MatrixPart& part : parts) out[part.matrix].push_back(part);
  return out;
}

// A part of a row: `values` has its elements.
struct RowPart {
  size_t matrix;
  int64_t row, column, length;
  const float* values;
};

// body(row_part) for all parts, those of one matrix on one thread.
template <typename Body>
void for_each_row_part_of(std::span<const Matrices> matrices,
                          const std::vector<std::vector<MatrixPart>>& parts, Body body) {
  const auto one_part = [&](const MatrixPart& part) {
    float scratch[kChunk];
    for_each_chunk(part.begin, part.end, [&](int64_t begin, int64_t numel) {
      const float* const values = part.values(begin - part.begin, numel, scratch);
      for_each_row_part(matrices[part.matrix], begin, begin + numel,
                        [&](int64_t row, int64_t column, int64_t at, int64_t length) {
                          body(RowPart{part.matrix, row, column, length, values + (at - begin)});
                        });
    });
  };
  at::parallel_for(0, static_cast<int64_t>(parts.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      for (const MatrixPart& part : parts[static_cast<size_t>(i)]) one_part(part);
    }
  });
}

// log2 of the units in one: the largest term and as many of them as there are stay below 2^62.
int shift_for(double largest, int64_t count) {
  return kSumBits - static_cast<int>(std::bit_width(static_cast<uint64_t>(count))) -
         (largest > 0 ? std::ilogb(largest) + 1 : 0);
}

std::vector<int> shifts_for(std::span<const Matrices> matrices, const std::vector<Place>& places,
                            const std::vector<double>& largest) {
  std::vector<int> shifts(largest.size());
  for (size_t k = 0; k < matrices.size(); ++k) {
    const Matrices& m = matrices[k];
    for (int64_t i = 0; i < m.all_rows() + m.all_columns(); ++i) {
      const auto at = static_cast<size_t>(places[k].rows + i);
      shifts[at] = shift_for(largest[at], i < m.all_rows() ? m.columns : m.rows);
    }
  }
  return shifts;
}

MatrixMeans means_from(std::span<const Matrices> matrices, const std::vector<Place>& places,
                       const std::vector<int64_t>& sums, const std::vector<int>& shifts) {
  MatrixMeans means;
  for (size_t k = 0; k < matrices.size(); ++k) {
    const Matrices& m = matrices[k];
    const auto mean = [&](int64_t at, int64_t count) {
      const auto i = static_cast<size_t>(at);
      return std::ldexp(static_cast<double>(sums[i]), -shifts[i]) / static_cast<double>(count);
    };
    means.rows.emplace_back();
    means.columns.emplace_back();
    for (int64_t i = 0; i < m.all_rows(); ++i) {
      means.rows.back().push_back(mean(places[k].rows + i, m.columns));
    }
    for (int64_t i = 0; i < m.all_columns(); ++i) {
      means.columns.back().push_back(mean(places[k].columns + i, m.rows));
    }
  }
  return means;
}

}  // namespace

Matrices matrices_of(const model::ParameterSpec& parameter) {
  Matrices m;
  m.columns = parameter.shape.back();
  m.rows = parameter.shape[parameter.shape.size() - 2];
  for (size_t i = 0; i + 2 < parameter.shape.size(); ++i) m.count *= parameter.shape[i];
  return m;
}

Result<MatrixMeans> means_of_squares(std::span<const Matrices> matrices,
                                     std::span<const MatrixPart> all_parts, float factor,
                                     double epsilon, Reducer& reducer) {
  size_t size = 0;
  const std::vector<Place> places = places_of(matrices, &size);
  const auto parts = by_matrix(all_parts, matrices.size());
  std::vector<double> largest(size, 0);
  for_each_row_part_of(matrices, parts, [&](const RowPart& part) {
    double& row = largest[static_cast<size_t>(places[part.matrix].rows + part.row)];
    double* const columns = largest.data() + places[part.matrix].columns + part.column;
    double of_row = row;
    for (int64_t i = 0; i < part.length; ++i) {
      const double value = term(part.values[i], factor, epsilon);
      of_row = std::max(of_row, value);
      columns[i] = std::max(columns[i], value);
    }
    row = of_row;
  });
  STRATA_RETURN_IF_ERROR(reducer.max(largest));

  const std::vector<int> shifts = shifts_for(matrices, places, largest);
  std::vector<double> scales(size);
  for (size_t i = 0; i < size; ++i) scales[i] = std::ldexp(1.0, shifts[i]);
  std::vector<int64_t> sums(size, 0);
  for_each_row_part_of(matrices, parts, [&](const RowPart& part) {
    const auto row = static_cast<size_t>(places[part.matrix].rows + part.row);
    const int64_t column = places[part.matrix].columns + part.column;
    const double* const column_scales = scales.data() + column;
    int64_t* const column_sums = sums.data() + column;
    int64_t of_row = 0;
    for (int64_t i = 0; i < part.length; ++i) {
      const double value = term(part.values[i], factor, epsilon);
      of_row += std::llrint(value * scales[row]);
      column_sums[i] += std::llrint(value * column_scales[i]);
    }
    sums[row] += of_row;
  });
  STRATA_RETURN_IF_ERROR(reducer.sum(sums));
  return means_from(matrices, places, sums, shifts);
}

}  // namespace strata::optim
