// The layout of everything in core/abi, as text: one line per struct, field, slot and constant.
//
// core/abi/abi.lock holds the text that was agreed on. A struct or constant that is not listed in
// abi_layout.cpp is found by the test, which reads the headers.
#ifndef STRATA_TESTS_ABI_ABI_LAYOUT_H_
#define STRATA_TESTS_ABI_ABI_LAYOUT_H_

#include <string>
#include <vector>

namespace strata::test {

struct LayoutField {
  std::string name;
  size_t offset;
  size_t size;
  std::string type;
};

struct LayoutStruct {
  std::string name;
  size_t size;
  size_t min_size;  // 0: may not grow
  std::vector<LayoutField> fields;
};

struct LayoutConstant {
  std::string name;
  std::string value;
};

const std::vector<LayoutStruct>& abi_structs();
const std::vector<LayoutConstant>& abi_constants();
std::string abi_text();

}  // namespace strata::test

#endif  // STRATA_TESTS_ABI_ABI_LAYOUT_H_
