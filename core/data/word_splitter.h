// GPT-2's split of a text into words, within which byte pairs are merged.
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Matched by PCRE2, compiled for the machine where that is possible. Bytes that are not UTF-8 are
// words of their own, so that the words, one after the other, are always the whole text.
#ifndef STRATA_DATA_WORD_SPLITTER_H_
#define STRATA_DATA_WORD_SPLITTER_H_

#include <string_view>

namespace strata::data {

// Walks through one text. Each thread uses its own.
//
//   WordSplitter words(text);
//   while (words.next()) use(words.word());
class WordSplitter {
 public:
  // The text must live as long as this object.
  explicit WordSplitter(std::string_view text);
  ~WordSplitter();
  WordSplitter(const WordSplitter&) = delete;
  WordSplitter& operator=(const WordSplitter&) = delete;

  // Moves to the next word; false at the end of the text.
  bool next();
  std::string_view word() const { return word_; }

 private:
  // Cuts the next run of UTF-8, or of bytes that are not, from the rest.
  void next_run();

  std::string_view rest_;  // of the text, behind the run
  std::string_view run_;   // valid UTF-8, from which words are cut
  size_t position_ = 0;    // in run_
  std::string_view word_;
  void* match_data_;  // pcre2_match_data
};

}  // namespace strata::data

#endif  // STRATA_DATA_WORD_SPLITTER_H_
