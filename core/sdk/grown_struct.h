// The growth rules of argument structs, once for all slots: a struct may be longer or shorter than
// the one that this library was compiled with.
#ifndef STRATA_SDK_GROWN_STRUCT_H_
#define STRATA_SDK_GROWN_STRUCT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "strata/sdk/strategy.h"

namespace strata::sdk {

// The struct in this library's own shape: fields that the other side does not have are zero. Throws
// if the pointer is null or the struct is smaller than its frozen minimum.
template <typename T>
T read_struct(const T* from, size_t min_size, const char* name) {
  if (from == nullptr) throw Error(STRATA_E_INVALID_ARGUMENT, std::string(name) + " is NULL");
  if (from->struct_size < min_size) {
    throw Error(STRATA_E_INVALID_ARGUMENT,
                std::string(name) + ".struct_size = " + std::to_string(from->struct_size) +
                    ", below the minimum of " + std::to_string(min_size));
  }
  T out{};
  std::memcpy(&out, from, std::min<size_t>(from->struct_size, sizeof(T)));
  out.struct_size = sizeof(T);
  return out;
}

// Throws as read_struct does; nothing else. For structs that the other side wants filled.
template <typename T>
void check_output(const T* out, size_t min_size, const char* name) {
  read_struct(out, min_size, name);
}

// Fills the other side's struct, as much of it as there is; its struct_size stays.
template <typename T>
void write_struct(T* to, T value) {
  value.struct_size = to->struct_size;
  std::memcpy(static_cast<void*>(to), &value, std::min<size_t>(to->struct_size, sizeof(T)));
}

// The elements of an array whose stride is the other side's struct_size, in this library's shape.
template <typename T>
std::vector<T> read_array(const T* first, uint32_t count, size_t min_size, const char* name) {
  std::vector<T> out;
  out.reserve(count);
  const char* at = reinterpret_cast<const char*>(first);
  for (uint32_t i = 0; i < count; ++i) {
    out.push_back(read_struct(reinterpret_cast<const T*>(at), min_size, name));
    at += first->struct_size;
  }
  return out;
}

// A unit or a whole model in this library's shape. Borrows names, shapes and the order.
class UnitCopy {
 public:
  explicit UnitCopy(const strata_unit_t* unit)
      : unit_(read_struct(unit, STRATA_UNIT_MIN_SIZE, "unit")),
        parameters_(read_array(unit_.parameters, unit_.parameter_count, STRATA_PARAMETER_MIN_SIZE,
                               "parameter")) {
    unit_.parameters = parameters_.data();
  }
  UnitCopy(UnitCopy&&) = default;  // the vector's memory, and so the pointer to it, stays
  UnitCopy(const UnitCopy&) = delete;
  const strata_unit_t& get() const { return unit_; }

 private:
  strata_unit_t unit_;
  std::vector<strata_parameter_t> parameters_;
};

class ModelCopy {
 public:
  explicit ModelCopy(const strata_model_t* model)
      : model_(read_struct(model, STRATA_MODEL_MIN_SIZE, "model")) {
    const char* at = reinterpret_cast<const char*>(model_.units);
    for (uint32_t i = 0; i < model_.unit_count; ++i) {
      copies_.emplace_back(reinterpret_cast<const strata_unit_t*>(at));
      units_.push_back(copies_.back().get());
      at += model_.units->struct_size;
    }
    model_.units = units_.data();
  }
  ModelCopy(const ModelCopy&) = delete;
  const strata_model_t& get() const { return model_; }

 private:
  strata_model_t model_;
  std::vector<UnitCopy> copies_;
  std::vector<strata_unit_t> units_;
};

}  // namespace strata::sdk

#endif  // STRATA_SDK_GROWN_STRUCT_H_
