#include "strata/plugin/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "strata/base/text.h"

namespace strata::plugin {
namespace {

namespace fs = std::filesystem;

bool is_plugin_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("libstrata_") && name.ends_with(".so");
}

void add_places(std::vector<SearchPlace>& places, const std::string& list,
                const std::string& origin, bool must_be_there = false) {
  for (const std::string& path : text::split(list, ':')) {
    if (path.empty()) continue;
    places.push_back({fs::absolute(path).lexically_normal().string(), origin, must_be_there});
  }
}

// The options of an alias with those of the user over them.
OptionList merge(OptionList base, const OptionList& over) {
  for (const auto& [key, value] : over) {
    const auto found = std::find_if(base.begin(), base.end(),
                                    [&](const auto& option) { return option.first == key; });
    if (found == base.end()) {
      base.emplace_back(key, value);
    } else {
      found->second = value;
    }
  }
  return base;
}

}  // namespace

std::vector<SearchPlace> search_places(const std::vector<std::string>& plugin_path_flags) {
  std::vector<SearchPlace> places;
  for (const std::string& flag : plugin_path_flags) add_places(places, flag, "--plugin-path", true);
  if (const char* variable = std::getenv("STRATA_PLUGIN_PATH")) {
    add_places(places, variable, "STRATA_PLUGIN_PATH");
  }
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    add_places(places, (executable.parent_path() / "../lib/strata/plugins").string(),
               "beside the executable");
  }
  return places;
}

PluginRegistry::PluginRegistry(const HostOffer& offer, std::vector<SearchPlace> places,
                               Closing closing)
    : offer_(offer), places_(std::move(places)), closing_(closing), scans_(places_.size()) {}

Result<ResolvedStrategy> PluginRegistry::find(const StrategyRequest& request) {
  if (!request.file.empty()) return find_in_file(request);
  STRATA_ASSIGN_OR_RETURN(std::shared_ptr<PluginLibrary> library, find_by_name(request.name));
  if (library != nullptr) return ResolvedStrategy{library, request.name, request.options, ""};
  return find_alias(request);
}

Result<ResolvedStrategy> PluginRegistry::find_in_file(const StrategyRequest& request) {
  auto loaded = PluginLibrary::load(request.file, offer_, closing_);
  if (!loaded.ok()) return loaded.status();
  const std::shared_ptr<PluginLibrary>& library = *loaded;
  const std::string names = text::join(library->strategies());
  if (request.name.empty() && library->strategies().size() > 1) {
    return invalid_argument(
        fmt::format("plugin '{}' holds several strategies: {}. HINT: --strategy {}#{}",
                    library->path(), names, request.file, library->strategies().front()));
  }
  if (!request.name.empty() && !library->has_strategy(request.name)) {
    const std::string guess = text::nearest(request.name, library->strategies());
    return not_found(fmt::format(
        "plugin '{}' has no strategy '{}'. It has: {}. HINT: --strategy {}#{}", library->path(),
        request.name, names, request.file, guess.empty() ? library->strategies().front() : guess));
  }
  const std::string name = request.name.empty() ? library->strategies().front() : request.name;
  return ResolvedStrategy{library, name, request.options, ""};
}

// Null if no place has it.
Result<std::shared_ptr<PluginLibrary>> PluginRegistry::find_by_name(const std::string& name) {
  for (size_t place = 0; place < places_.size(); ++place) {
    auto found = find_in_place(place, name);
    if (!found.ok()) {
      return Status(found.status().code(), fmt::format("strategy '{}': {}\n{}", name,
                                                       found.status().message(), places_text()));
    }
    if (*found != nullptr) return found;
  }
  return std::shared_ptr<PluginLibrary>();
}

// Null if this place does not have it.
Result<std::shared_ptr<PluginLibrary>> PluginRegistry::find_in_place(size_t place,
                                                                     const std::string& name) {
  const SearchPlace& where = places_[place];
  std::error_code error;
  if (where.must_be_there && !fs::exists(where.path, error)) {
    return not_found(fmt::format("'{}' ({}) is not there. HINT: name an existing folder",
                                 where.path, where.origin));
  }
  const fs::path direct = fs::path(where.path) / fmt::format("libstrata_{}.so", name);
  if (fs::exists(fs::symlink_status(direct, error))) {
    const FoundPlugin& found = load_file(place, direct.string());
    if (!found.status.ok()) return found.status;
    if (found.library->has_strategy(name)) return found.library;
  }
  scan(place);
  const FoundPlugin* match = nullptr;
  for (const FoundPlugin& found : scans_[place].files) {
    // A file that was itself named as a place must load, whatever is asked for.
    if (found.library == nullptr && found.file == where.path) return found.status;
    if (found.library == nullptr || !found.library->has_strategy(name)) continue;
    if (match != nullptr && match->library != found.library) {
      return invalid_argument(fmt::format("both '{}' and '{}' have it. HINT: --strategy {}#{}",
                                          match->file, found.file, match->file, name));
    }
    match = &found;
  }
  return match != nullptr ? match->library : std::shared_ptr<PluginLibrary>();
}

// Every place is scanned by now.
Result<ResolvedStrategy> PluginRegistry::find_alias(const StrategyRequest& request) {
  for (const FoundPlugin& found : list()) {
    if (found.library == nullptr) continue;
    for (const Alias& alias : found.library->aliases()) {
      if (alias.name != request.name) continue;
      STRATA_ASSIGN_OR_RETURN(
          const OptionList options,
          parse_options(alias.options, fmt::format("alias '{}' of plugin '{}'", alias.name,
                                                   found.library->path())));
      const std::string with = alias.options.empty() ? "" : " with " + alias.options;
      ResolvedStrategy resolved{
          found.library, alias.strategy, merge(options, request.options),
          fmt::format("strategy '{}' is '{}'{}", alias.name, alias.strategy, with)};
      if (!request.options.empty()) {
        resolved.message += fmt::format("; with your options: {}", to_text(resolved.options));
      }
      return resolved;
    }
  }
  return refuse_unknown(request.name);
}

Status PluginRegistry::refuse_unknown(const std::string& name) {
  std::vector<std::string> names;
  std::string found_text;
  std::string failed_text;
  for (const FoundPlugin& found : list()) {
    if (found.library == nullptr) {
      failed_text += fmt::format("\n  {}", found.status.message());
      continue;
    }
    for (const std::string& strategy : found.library->strategies()) {
      names.push_back(strategy);
      found_text += fmt::format("\n  {} ({})", strategy, found.file);
    }
    for (const Alias& alias : found.library->aliases()) names.push_back(alias.name);
  }
  const std::string guess = text::nearest(name, names);
  std::string message = fmt::format("there is no strategy '{}'", name);
  if (!guess.empty()) message += fmt::format("; did you mean '{}'?", guess);
  message += found_text.empty() ? "\nNo strategy was found." : "\nFound:" + found_text;
  if (!failed_text.empty()) message += "\nDid not load:" + failed_text;
  message += "\n" + places_text();
  if (!guess.empty()) {
    message += fmt::format("\nHINT: --strategy {}", guess);
  } else {
    message += "\nHINT: name the folder of its plugin with --plugin-path or STRATA_PLUGIN_PATH";
  }
  return not_found(message);
}

std::string PluginRegistry::places_text() const {
  std::string out = "Searched:";
  if (places_.empty()) return out + " nowhere";
  for (const SearchPlace& place : places_) {
    std::error_code error;
    out += fmt::format("\n  {} ({}){}", place.path, place.origin,
                       fs::exists(place.path, error) ? "" : ": is not there");
  }
  return out;
}

const FoundPlugin& PluginRegistry::load_file(size_t place, const std::string& file) {
  Scan& scan = scans_[place];
  for (const FoundPlugin& known : scan.files) {
    if (known.file == file) return known;
  }
  FoundPlugin found{file, places_[place].origin, nullptr, {}};
  auto loaded = PluginLibrary::load(file, offer_, closing_);
  if (!loaded.ok()) {
    found.status = loaded.status();
  } else {
    found.library = *loaded;
  }
  // An id stands for one library: of two, the one found first counts.
  for (const Scan& other : scans_) {
    for (const FoundPlugin& known : other.files) {
      if (found.library == nullptr || known.library == nullptr) continue;
      if (known.library == found.library || known.library->id() != found.library->id()) continue;
      found.status = invalid_argument(fmt::format(
          "plugin '{}' has the id '{}' of '{}', which was found first. HINT: remove one of them",
          file, found.library->id(), known.file));
      found.library = nullptr;
    }
  }
  scan.files.push_back(std::move(found));
  return scan.files.back();
}

void PluginRegistry::scan(size_t place) {
  if (scans_[place].is_complete) return;
  scans_[place].is_complete = true;
  std::error_code error;
  std::vector<std::string> files;
  const fs::path path = places_[place].path;
  if (fs::is_directory(path, error)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
      if (is_plugin_file(entry.path())) files.push_back(entry.path().string());
    }
  } else if (fs::exists(path, error)) {
    files.push_back(path.string());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) load_file(place, file);
}

const std::vector<FoundPlugin>& PluginRegistry::list() {
  all_.clear();
  for (size_t place = 0; place < places_.size(); ++place) {
    scan(place);
    all_.insert(all_.end(), scans_[place].files.begin(), scans_[place].files.end());
  }
  return all_;
}

}  // namespace strata::plugin
