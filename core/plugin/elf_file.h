// Whether a file is a shared library for this process, before the dynamic loader sees it.
//
// dlopen's own words for a text file or another machine are terse, and it maps a truncated file
// without complaint: the process then dies of SIGBUS at the first missing page.
#ifndef STRATA_PLUGIN_ELF_FILE_H_
#define STRATA_PLUGIN_ELF_FILE_H_

#include <string>

#include "strata/base/status.h"

namespace strata::plugin {

// Returns  kNotFound         no such file
//          kIo               it cannot be read
//          kUnsupported      another machine or word size
//          kInvalidArgument  not a shared library, or truncated
// The message begins with the path and says what was found and what is needed.
Status check_shared_library_file(const std::string& path);

}  // namespace strata::plugin

#endif  // STRATA_PLUGIN_ELF_FILE_H_
