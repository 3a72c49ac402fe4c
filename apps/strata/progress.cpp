#include "apps/strata/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace strata::apps {
namespace {

constexpr int kBarWidth = 24;
constexpr std::chrono::milliseconds kTerminalPeriod{100};
constexpr std::chrono::seconds kFilePeriod{5};

void write_all(int descriptor, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(descriptor, text.data() + done, text.size() - done);
    if (n <= 0) return;  // a closed terminal must not end a run
    done += static_cast<size_t>(n);
  }
}

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(int descriptor, int64_t first_step, int64_t last_step)
    : descriptor_(descriptor),
      is_terminal_(isatty(descriptor) == 1),
      first_step_(first_step),
      last_step_(last_step),
      begin_(Clock::now()),
      last_write_(begin_ - std::chrono::hours(1)) {}

Progress::~Progress() { finish(); }

std::string Progress::line(const train::StepMetrics& m, int64_t first_step, int64_t last_step,
                           double elapsed_s) {
  const int64_t done = m.step - first_step + 1;
  const int64_t total = std::max<int64_t>(last_step - first_step + 1, 1);
  const auto filled =
      static_cast<size_t>(std::clamp<int64_t>(done * kBarWidth / total, 0, kBarWidth));
  // The clock starts when the first step is done.
  const double step_s = done > 1 ? elapsed_s / static_cast<double>(done - 1) : m.step_s;
  const double rest_s = step_s * static_cast<double>(total - done);
  return fmt::format("step {}/{} [{}{}] loss {:.4f}  norm {:.3g}  lr {:.2e}  {:.0f} tok/s  ETA {}",
                     m.step, last_step, std::string(filled, '#'),
                     std::string(kBarWidth - filled, '-'), m.loss, m.grad_norm, m.lr,
                     m.tokens_per_s, format_duration(rest_s));
}

void Progress::update(const train::StepMetrics& metrics) {
  const Clock::time_point now = Clock::now();
  const bool is_last = metrics.step == last_step_;
  const auto period = is_terminal_ ? std::chrono::milliseconds(kTerminalPeriod)
                                   : std::chrono::milliseconds(kFilePeriod);
  if (!is_last && now - last_write_ < period) return;
  last_write_ = now;
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const std::string text = line(metrics, first_step_, last_step_, elapsed);
  write_all(descriptor_, is_terminal_ ? "\r\x1b[K" + text : text + '\n');
  has_open_line_ = is_terminal_;
}

void Progress::finish() {
  if (has_open_line_) write_all(descriptor_, "\n");
  has_open_line_ = false;
}

}  // namespace strata::apps
