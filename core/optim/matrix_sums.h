// Means over rows and columns of parameters from the slices that each rank owns: the same bits
// whatever the slicing.
//
// A row's terms are added as whole numbers, in units small enough that rounding to them is below a
// float's precision and large enough that the sum fits 64 bits: the largest term of each row over
// all ranks decides. No order of additions changes an integer sum.
#ifndef STRATA_OPTIM_MATRIX_SUMS_H_
#define STRATA_OPTIM_MATRIX_SUMS_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/base/status.h"
#include "strata/optim/gradients.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/slices.h"

namespace strata::optim {

// A parameter of two or more dimensions as matrices of its last two.
//   shape (4, 10, 3)  ->  4 matrices of 10 rows and 3 columns; 40 rows, 12 columns in all
struct Matrices {
  int64_t count = 1, rows = 1, columns = 1;
  int64_t numel() const { return count * rows * columns; }
  int64_t all_rows() const { return count * rows; }
  int64_t all_columns() const { return count * columns; }
};
Matrices matrices_of(const model::ParameterSpec& parameter);

// Calls body(row, column, at, length) for each part of a row in elements [begin, end) of a
// parameter: the part begins in column `column` (counted over all matrices) of row `row`, and at
// element `at`.
template <typename Body>
void for_each_row_part(const Matrices& m, int64_t begin, int64_t end, Body body) {
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / m.columns;
    const int64_t in_row = at % m.columns;
    const int64_t length = std::min(m.columns - in_row, end - at);
    body(row, row / m.rows * m.columns + in_row, at, length);
    at += length;
  }
}

// One parameter's part of a sum: elements [begin, end) of it, whose first is element 0 of `values`.
struct MatrixPart {
  size_t matrix = 0;  // index into the list of matrices
  int64_t begin = 0;
  int64_t end = 0;
  Values values;
};

struct MatrixMeans {
  // By matrix: means over a row's elements, and over a column's.
  std::vector<std::vector<double>> rows, columns;
};

// Means of (value * factor)^2 + epsilon. Parts of all ranks together cover each element once.
// [collective]
//
// REQUIRES: values are finite.
Result<MatrixMeans> means_of_squares(std::span<const Matrices> matrices,
                                     std::span<const MatrixPart> parts, float factor,
                                     double epsilon, Reducer& reducer);

}  // namespace strata::optim

#endif  // STRATA_OPTIM_MATRIX_SUMS_H_
