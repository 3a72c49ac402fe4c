// Who includes whom is what core/layers.txt says, and core/ knows no strategy by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace strata::test {
namespace {

namespace fs = std::filesystem;
const fs::path kSource = STRATA_SOURCE_DIR;

struct Room {
  bool has_no_torch = false;
  std::set<std::string> includes;
};

// One line of a source file, without comments.
struct Line {
  fs::path file;
  int number;
  std::string code;
};

std::map<std::string, Room> read_layers() {
  std::map<std::string, Room> rooms;
  std::ifstream file(kSource / "core/layers.txt");
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    Room& room = rooms[line.substr(0, line.find(':'))];
    std::string word;
    while (words >> word) {
      if (word == "[no-torch]") {
        room.has_no_torch = true;
      } else {
        room.includes.insert(word);
      }
    }
  }
  return rooms;
}

bool is_source(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".h" || extension == ".cpp" || extension == ".c" || extension == ".cu" ||
         extension == ".cuh";
}

// Takes comments away; what is in quotes stays.
std::string without_comments(const std::string& text) {
  std::string out;
  enum { kCode, kString, kChar, kLineComment, kBlockComment } state = kCode;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '\n') {
      if (state == kLineComment) state = kCode;
      out += c;
      continue;
    }
    switch (state) {
      case kCode:
        if (c == '/' && next == '/') state = kLineComment;
        if (c == '/' && next == '*') state = kBlockComment;
        if (c == '"') state = kString;
        if (c == '\'' && (i == 0 || !isalnum(static_cast<unsigned char>(text[i - 1]))))
          state = kChar;
        if (state != kLineComment && state != kBlockComment) out += c;
        break;
      case kString:
      case kChar:
        out += c;
        if (c == '\\') out += text[++i];
        if (c == (state == kString ? '"' : '\'')) state = kCode;
        break;
      case kBlockComment:
        if (c == '*' && next == '/') {
          state = kCode;
          ++i;
        }
        break;
      case kLineComment: break;
    }
  }
  return out;
}

void for_each_line(const fs::path& folder, const std::function<void(const Line&)>& visit) {
  if (!fs::exists(folder)) return;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || !is_source(entry.path())) continue;
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    std::istringstream lines(without_comments(text.str()));
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      visit({fs::relative(entry.path(), kSource), number, line});
    }
  }
}

std::string place(const Line& line) {
  return line.file.string() + ":" + std::to_string(line.number) + ": " + line.code;
}

// The room of `#include "strata/ROOM/..."`, or "".
std::string included_room(const std::string& code) {
  static const std::regex include(R"(^\s*#\s*include\s*["<]strata/(\w+)/)");
  std::smatch match;
  return std::regex_search(code, match, include) ? match[1].str() : "";
}

bool includes_torch(const std::string& code) {
  static const std::regex include(R"(^\s*#\s*include\s*["<](torch|ATen|c10|caffe2)/)");
  return std::regex_search(code, include);
}

TEST(Layers, NameEveryRoomOfCore) {
  const auto rooms = read_layers();
  ASSERT_GE(rooms.size(), 10u);
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "core")) {
    if (!entry.is_directory()) continue;
    EXPECT_EQ(rooms.count(entry.path().filename().string()), 1u) << entry.path();
  }
}

TEST(Layers, HaveNoCycle) {
  const auto rooms = read_layers();
  // 0: not seen, 1: on the way, 2: done.
  std::map<std::string, int> marks;
  const std::function<bool(const std::string&)> has_cycle = [&](const std::string& name) {
    if (marks[name] == 1) return true;
    if (marks[name] == 2) return false;
    marks[name] = 1;
    for (const std::string& next : rooms.at(name).includes) {
      if (has_cycle(next)) return true;
    }
    marks[name] = 2;
    return false;
  };
  for (const auto& [name, room] : rooms) {
    for (const std::string& next : room.includes) {
      ASSERT_EQ(rooms.count(next), 1u) << name << " names the unknown room " << next;
      if (room.has_no_torch) {
        EXPECT_TRUE(rooms.at(next).has_no_torch) << name << " gets LibTorch through " << next;
      }
    }
    EXPECT_FALSE(has_cycle(name)) << "through " << name;
  }
}

TEST(Layers, AllowEveryIncludeOfCore) {
  const auto rooms = read_layers();
  for (const auto& [name, room] : rooms) {
    for_each_line(kSource / "core" / name, [&, &name = name, &room = room](const Line& line) {
      const std::string other = included_room(line.code);
      if (!other.empty() && other != name) {
        EXPECT_EQ(room.includes.count(other), 1u) << place(line) << "\n  layers.txt does not let '"
                                                  << name << "' include '" << other << "'";
      }
      EXPECT_FALSE(room.has_no_torch && includes_torch(line.code)) << place(line);
    });
  }
}

TEST(Layers, ShowPluginsNothingButAbiAndSdk) {
  for_each_line(kSource / "plugins", [](const Line& line) {
    const std::string room = included_room(line.code);
    EXPECT_TRUE(room.empty() || room == "abi" || room == "sdk") << place(line);
    EXPECT_FALSE(includes_torch(line.code)) << place(line);
  });
}

TEST(Layers, AreCrossedByNoRelativeInclude) {
  static const std::regex climbing(R"(^\s*#\s*include\s*["<]\.\./)");
  for (const char* folder : {"core", "plugins", "apps"}) {
    for_each_line(kSource / folder, [](const Line& line) {
      EXPECT_FALSE(std::regex_search(line.code, climbing)) << place(line);
    });
  }
}

// Defaults of the command line, in core/config, are names and no knowledge; asking for one is.
TEST(Core, KnowsNoStrategyByName) {
  static const std::regex name(R"re("(ddp|zero[123]|fsdp|hsdp|offload)")re");
  static const std::regex question(R"re([=!]=\s*"(single|ddp|zero[123]?|fsdp|hsdp|offload)")re");
  for_each_line(kSource / "core", [](const Line& line) {
    const bool is_config = line.file.string().rfind("core/config/", 0) == 0;
    EXPECT_FALSE(!is_config && std::regex_search(line.code, name)) << place(line);
    EXPECT_FALSE(std::regex_search(line.code, question)) << place(line);
  });
}

TEST(Comments, AreTakenAwayAndQuotesStay) {
  EXPECT_EQ(without_comments("a // b\nc /* d */ e \"//f\" '\"' // g"), "a \nc  e \"//f\" '\"' ");
}

}  // namespace
}  // namespace strata::test
