#include "strata/sdk/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace strata::sdk {
namespace {

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

template <typename T>
bool parse_whole(std::string_view text, T& out) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out);
  return !text.empty() && result.ec == std::errc() && result.ptr == end;
}

template <typename T>
std::string range_text(const char* kind, T least, T most) {
  char low[32], high[32];
  *std::to_chars(low, low + sizeof(low) - 1, least).ptr = '\0';
  *std::to_chars(high, high + sizeof(high) - 1, most).ptr = '\0';
  if (most == std::numeric_limits<T>::max()) return std::string(kind) + " of at least " + low;
  return std::string(kind) + " from " + low + " to " + high;
}

// The factor of "K", "KB", "KiB", ...; 0 for an unknown unit.
uint64_t unit_factor(std::string_view unit) {
  const std::string lower = to_lower(unit);
  if (lower.empty() || lower == "b") return 1;
  static constexpr char kUnits[] = {'k', 'm', 'g', 't'};
  for (size_t i = 0; i < std::size(kUnits); ++i) {
    const std::string letter(1, kUnits[i]);
    if (lower == letter || lower == letter + "b" || lower == letter + "ib") {
      return uint64_t{1} << (10 * (i + 1));
    }
  }
  return 0;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

Options::Options(const strata_create_args_t& args, const std::vector<OptionInfo>& declared)
    : strategy_(args.name != nullptr ? args.name : "strategy") {
  std::vector<std::string> keys;
  for (const OptionInfo& option : declared) {
    keys.emplace_back(option.key);
    values_[option.key] = {option.default_value, option.default_value, false};
  }
  for (uint32_t i = 0; i < args.option_count; ++i) {
    const std::string key = args.options[i].key;
    const std::string value = args.options[i].value;
    const auto found = values_.find(key);
    if (found == values_.end()) {
      const std::string guess = nearest(key, keys);
      std::string text = strategy_ + ": unknown option '" + key + "' (= '" + value + "'). ";
      text += keys.empty() ? "This strategy has no options." : "Known: " + join(keys) + ".";
      text += guess.empty() ? " HINT: take it away" : " HINT: did you mean '" + guess + "'?";
      throw Error(STRATA_E_INVALID_ARGUMENT, text);
    }
    if (found->second.is_given && found->second.text != value) {
      throw Error(STRATA_E_INVALID_ARGUMENT, strategy_ + ": option '" + key +
                                                 "' is given twice, as '" + found->second.text +
                                                 "' and as '" + value + "'. HINT: keep one");
    }
    found->second.text = value;
    found->second.is_given = true;
  }
}

const Options::Value& Options::find(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    throw Error(STRATA_E_INTERNAL, strategy_ + ": reads the option '" + std::string(key) +
                                       "', which it does not declare");
  }
  return found->second;
}

void Options::refuse(std::string_view key, const std::string& allowed) const {
  const Value& value = find(key);
  throw Error(STRATA_E_INVALID_ARGUMENT, strategy_ + ": option '" + std::string(key) + "' = '" +
                                             value.text + "'; allowed is " + allowed +
                                             ". HINT: the default is " + std::string(key) + "=" +
                                             value.default_text);
}

bool Options::flag(std::string_view key) const {
  const std::string text = to_lower(find(key).text);
  for (const char* word : {"true", "1", "yes", "on"}) {
    if (text == word) return true;
  }
  for (const char* word : {"false", "0", "no", "off"}) {
    if (text == word) return false;
  }
  refuse(key, "true, 1, yes, on, or false, 0, no, off");
}

int64_t Options::integer(std::string_view key, int64_t least, int64_t most) const {
  int64_t value = 0;
  if (!parse_whole(find(key).text, value) || value < least || value > most) {
    refuse(key, range_text("a whole number", least, most));
  }
  return value;
}

double Options::number(std::string_view key, double least, double most) const {
  double value = 0;
  if (!parse_whole(find(key).text, value) || !std::isfinite(value) || value < least ||
      value > most) {
    refuse(key, range_text("a number", least, most));
  }
  return value;
}

size_t Options::choice(std::string_view key, std::initializer_list<const char*> words) const {
  const std::string& text = find(key).text;
  size_t index = 0;
  for (const char* word : words) {
    if (text == word) return index;
    ++index;
  }
  const std::vector<std::string> known(words.begin(), words.end());
  const std::string guess = nearest(text, known);
  refuse(key, "one of " + join(known) + (guess.empty() ? "" : " (did you mean '" + guess + "'?)"));
}

uint64_t Options::size(std::string_view key, uint64_t least, uint64_t most) const {
  const std::string_view text = find(key).text;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const uint64_t factor = unit_factor(text.substr(digits));
  uint64_t value = 0;
  if (!parse_whole(text.substr(0, digits), value) || factor == 0 ||
      value > std::numeric_limits<uint64_t>::max() / factor || value * factor < least ||
      value * factor > most) {
    refuse(key, range_text("a size in bytes, for example 25M,", least, most));
  }
  return value * factor;
}

const std::string& Options::text(std::string_view key) const { return find(key).text; }

bool Options::is_given(std::string_view key) const { return find(key).is_given; }

}  // namespace strata::sdk
