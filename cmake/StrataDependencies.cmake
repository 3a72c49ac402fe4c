# Libraries of others. LibTorch comes from the wheel, by own imported targets: its CMake package demands a full CUDA toolkit.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
# LibTorch's include folder has an fmt of its own, of another version, without a library: ours is found first.
find_path(STRATA_FMT_INCLUDE fmt/format.h NO_CACHE REQUIRED)
file(CREATE_LINK ${STRATA_FMT_INCLUDE}/fmt ${CMAKE_BINARY_DIR}/include/fmt SYMBOLIC)
find_package(spdlog REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS program_options filesystem)
find_package(nlohmann_json REQUIRED)
find_package(GTest)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

if(NOT STRATA_LIBTORCH)
  if(DEFINED ENV{STRATA_DEPS_DIR})
    set(strata_deps $ENV{STRATA_DEPS_DIR})
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(strata_deps $ENV{XDG_CACHE_HOME}/strata)
  else()
    set(strata_deps $ENV{HOME}/.cache/strata)
  endif()
  set(STRATA_LIBTORCH ${strata_deps}/libtorch-${STRATA_LIBTORCH_VERSION})
endif()
if(NOT EXISTS ${STRATA_LIBTORCH}/torch/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch ${STRATA_LIBTORCH_VERSION} is not in ${STRATA_LIBTORCH}. "
                      "HINT: bash tools/setup.sh --libtorch ${STRATA_LIBTORCH_VERSION}, or -DSTRATA_LIBTORCH=DIR")
endif()
message(STATUS "LibTorch ${STRATA_LIBTORCH_VERSION} in ${STRATA_LIBTORCH}")

foreach(lib torch_cpu c10)
  add_library(strata_lib${lib} SHARED IMPORTED)
  set_target_properties(strata_lib${lib} PROPERTIES IMPORTED_LOCATION ${STRATA_LIBTORCH}/torch/lib/lib${lib}.so)
endforeach()
add_library(strata_libtorch INTERFACE)
target_include_directories(strata_libtorch SYSTEM INTERFACE
  ${STRATA_LIBTORCH}/torch/include ${STRATA_LIBTORCH}/torch/include/torch/csrc/api/include)
target_compile_definitions(strata_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_libraries(strata_libtorch INTERFACE strata_libtorch_cpu strata_libc10 Threads::Threads)
# The wheel's own libraries and those of its nvidia packages are found at link time; at run time libtorch_cpu's RUNPATH does.
target_link_options(strata_libtorch INTERFACE
  -Wl,-rpath,${STRATA_LIBTORCH}/torch/lib -Wl,-rpath-link,${STRATA_LIBTORCH}/nvidia/cu13/lib)
