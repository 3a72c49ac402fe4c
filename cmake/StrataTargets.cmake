# One function per kind of target: room, plugin, test.

# Adds a folder that has a CMakeLists.txt.
function(strata_add_directory dir)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/CMakeLists.txt)
    add_subdirectory(${dir})
  endif()
endfunction()

# The narrow set of LibTorch headers, precompiled once and shared by every LibTorch-facing target.
file(WRITE ${CMAKE_BINARY_DIR}/strata_torch_pch.cpp "// The owner of the shared precompiled header.\n")
add_library(strata_torch_pch STATIC ${CMAKE_BINARY_DIR}/strata_torch_pch.cpp)
target_link_libraries(strata_torch_pch PUBLIC strata_libtorch)
target_include_directories(strata_torch_pch PUBLIC ${CMAKE_BINARY_DIR}/include)
target_precompile_headers(strata_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/core/model/torch_pch.h)

function(strata_use_torch target)
  target_link_libraries(${target} PUBLIC strata_libtorch)
  # CMake would compile programs with -fPIE, and GCC then ignores a header that was precompiled with -fPIC.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM strata_torch_pch)
endfunction()

# strata_room(NAME [TORCH] SOURCES a.cpp ... ROOMS base abi ... LIBRARIES fmt::fmt ...)
# A static library strata_NAME (an interface library without SOURCES).
function(strata_room name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;ROOMS;LIBRARIES" ${ARGN})
  list(TRANSFORM ARG_ROOMS PREPEND strata_)
  if(ARG_SOURCES)
    add_library(strata_${name} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(strata_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(strata_${name} ${scope} ${CMAKE_BINARY_DIR}/include)
  target_link_libraries(strata_${name} ${scope} ${ARG_ROOMS} ${ARG_LIBRARIES})
  if(ARG_TORCH)
    strata_use_torch(strata_${name})
  endif()
endfunction()

# strata_plugin(NAME SOURCES a.cpp ...): libstrata_NAME.so in the plugins folder. It sees abi and sdk only, links no LibTorch,
# hides everything but the entry, and leaves no symbol undefined.
function(strata_plugin name)
  cmake_parse_arguments(ARG "" "OUTPUT_DIRECTORY" "SOURCES;LIBRARIES" ${ARGN})
  add_library(strata_plugin_${name} MODULE ${ARG_SOURCES})
  if(NOT ARG_OUTPUT_DIRECTORY)
    set(ARG_OUTPUT_DIRECTORY ${STRATA_PLUGIN_OUTPUT_DIRECTORY})
  endif()
  set_target_properties(strata_plugin_${name} PROPERTIES
    OUTPUT_NAME strata_${name} LIBRARY_OUTPUT_DIRECTORY ${ARG_OUTPUT_DIRECTORY})
  target_include_directories(strata_plugin_${name} PRIVATE ${CMAKE_BINARY_DIR}/include-plugin)
  target_link_libraries(strata_plugin_${name} PRIVATE strata_sdk ${ARG_LIBRARIES})
  target_link_options(strata_plugin_${name} PRIVATE
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/plugin.map -Wl,-Bsymbolic -Wl,-z,now)
  if(NOT STRATA_SANITIZE)
    target_link_options(strata_plugin_${name} PRIVATE -Wl,-z,defs)
  endif()
endfunction()

# What the check also builds with the oldest LibTorch: tests labelled `libtorch`.
add_custom_target(strata_libtorch_tests)

# strata_test(NAME KIND unit [TORCH] SOURCES a.cpp ROOMS base ... LIBRARIES ... [PROCESSORS 2] [TIMEOUT 60] [LABELS x])
# A GoogleTest program; each of its tests is a ctest test labelled by KIND.
function(strata_test name)
  cmake_parse_arguments(ARG "TORCH" "KIND;PROCESSORS;TIMEOUT" "SOURCES;ROOMS;LIBRARIES;LABELS;DEPENDS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  list(TRANSFORM ARG_ROOMS PREPEND strata_)
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_BINARY_DIR}/include ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_ROOMS} ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    STRATA_SOURCE_DIR="${CMAKE_SOURCE_DIR}" STRATA_BINARY_DIR="${CMAKE_BINARY_DIR}"
    STRATA_PLUGIN_DIR="${STRATA_PLUGIN_OUTPUT_DIRECTORY}" STRATA_LIBRARY_DIR="${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
  if(ARG_TORCH)
    strata_use_torch(${name})
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  if("libtorch" IN_LIST ARG_LABELS)
    add_dependencies(strata_libtorch_tests ${name})
  endif()
  set(labels LABELS ${ARG_KIND})
  foreach(label ${ARG_LABELS})
    list(APPEND labels LABELS ${label})
  endforeach()
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS} ${labels})
endfunction()
