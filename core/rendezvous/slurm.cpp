#include "strata/rendezvous/slurm.h"

#include <algorithm>
#include <charconv>

#include "strata/base/text.h"

namespace strata::rendezvous {
namespace {

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string first_host(const std::string& node_list) {
  const size_t end = std::min(node_list.find_first_of(",["), node_list.size());
  const std::string stem = node_list.substr(0, end);
  if (end == node_list.size() || node_list[end] == ',') return stem;
  const size_t stop = std::min(node_list.find_first_of(",-]", end + 1), node_list.size());
  const size_t close = std::min(node_list.find(']', end), node_list.size());
  const size_t after = std::min(close + 1, node_list.size());
  const size_t suffix_end = std::min(node_list.find(',', after), node_list.size());
  return stem + node_list.substr(end + 1, stop - end - 1) +
         node_list.substr(after, suffix_end - after);
}

std::optional<int> tasks_on_node(const std::string& tasks_per_node, int node) {
  int first = 0;
  for (const std::string& part : text::split(tasks_per_node, ',')) {
    const size_t open = part.find("(x");
    const std::optional<int> tasks = number(part.substr(0, open));
    std::optional<int> nodes = 1;
    if (open != std::string::npos) {
      if (part.back() != ')') return std::nullopt;
      nodes = number(part.substr(open + 2, part.size() - open - 3));
    }
    if (!tasks || !nodes) return std::nullopt;
    if (node < first + *nodes) return tasks;
    first += *nodes;
  }
  return std::nullopt;
}

}  // namespace strata::rendezvous
