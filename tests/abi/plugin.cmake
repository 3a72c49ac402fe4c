# Plugins that break one rule each, a plugin in C alone, one written with the SDK, and what loads them.
set(strata_bad_plugins ${CMAKE_BINARY_DIR}/tests/abi_plugins)
set(strata_abi_plugins "")

function(strata_test_plugin name source)
  add_library(abi_plugin_${name} MODULE ${source})
  set_target_properties(abi_plugin_${name} PROPERTIES
    OUTPUT_NAME strata_${name} LIBRARY_OUTPUT_DIRECTORY ${strata_bad_plugins}/all)
  target_include_directories(abi_plugin_${name} PRIVATE ${CMAKE_BINARY_DIR}/include-plugin)
  target_compile_definitions(abi_plugin_${name} PRIVATE ${ARGN})
  if(source MATCHES "\\.c$")
    target_compile_options(abi_plugin_${name} PRIVATE -std=c99 -pedantic-errors -Wno-unused-function)
  endif()
  set(strata_abi_plugins ${strata_abi_plugins} abi_plugin_${name} PARENT_SCOPE)
endfunction()

set(strata_plain_c ${CMAKE_CURRENT_SOURCE_DIR}/abi/plugins/plain_c.c)
strata_test_plugin(plain_c ${strata_plain_c})
strata_test_plugin(same_id ${strata_plain_c} PLUGIN_ID="strata.test.plain_c")
strata_test_plugin(same_name ${strata_plain_c} PLUGIN_ID="strata.test.other")
foreach(fault undefined no_entry refuses refuses_silently long_text magic size major requires_newer
              requires_more_than_built reserved null_id empty_id long_id strange_id null_version
              long_version null_get_table null_deinit past_plugin no_table small_table
              table_reserved null_slot no_strategies same_names bad_name name_behind_last
              no_description no_device)
  string(TOUPPER ${fault} macro)
  strata_test_plugin(bad_${fault} ${strata_plain_c} FAULT_${macro}=1)
endforeach()
set(strata_throws ${CMAKE_CURRENT_SOURCE_DIR}/abi/plugins/throws.cpp)
strata_test_plugin(bad_entry_throws ${strata_throws} FAULT_ENTRY_THROWS=1)
strata_test_plugin(bad_entry_throws_int ${strata_throws} FAULT_ENTRY_THROWS_INT=1)
strata_test_plugin(bad_slot_throws ${strata_throws} FAULT_SLOT_THROWS=1)

strata_plugin(test_sdk SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/abi/plugins/sdk_plugin.cpp
  OUTPUT_DIRECTORY ${strata_bad_plugins}/all)

strata_test(plugin_test KIND abi ROOMS plugin LIBRARIES Boost::boost DEPENDS ${strata_abi_plugins}
    strata_plugin_test_sdk SOURCES
  abi/library_test.cpp
  abi/plain_c_test.cpp
  abi/registry_test.cpp
  abi/request_test.cpp
  abi/sdk_plugin_test.cpp
)
target_compile_definitions(plugin_test PRIVATE STRATA_TEST_PLUGINS="${strata_bad_plugins}/all")

strata_test(checked_test KIND abi ROOMS plugin SOURCES abi/checked_test.cpp abi/checked_pass_test.cpp)

strata_test(sdk_options_test KIND unit ROOMS sdk SOURCES abi/sdk_options_test.cpp)

# The contract itself: its layout against abi.lock, each header alone in C99 and in C++, the rooms.
foreach(language c cpp)
  set(sources "")
  foreach(header types plugin host strategy collectives aliases)
    set(alone ${CMAKE_BINARY_DIR}/tests/headers/${header}_alone.${language})
    file(CONFIGURE OUTPUT ${alone} CONTENT
      "#include \"strata/abi/${header}.h\"\n#include \"strata/abi/${header}.h\"\nextern int strata_${header}_alone;\nint strata_${header}_alone = 1;\n")
    list(APPEND sources ${alone})
  endforeach()
  add_library(abi_headers_${language} OBJECT ${sources})
  target_include_directories(abi_headers_${language} PRIVATE ${CMAKE_BINARY_DIR}/include-plugin)
  target_compile_options(abi_headers_${language} PRIVATE
    -pedantic-errors -Werror $<$<COMPILE_LANGUAGE:C>:-std=c99>)
endforeach()

strata_test(contract_test KIND abi ROOMS abi plugin DEPENDS abi_headers_c
    abi_headers_cpp strata_plugin_test_sdk SOURCES
  abi/abi_layout.cpp
  abi/abi_lock_test.cpp
  abi/layers_test.cpp
  abi/binaries_test.cpp
)
foreach(plugin ddp fsdp zero)
  if(TARGET strata_plugin_${plugin})
    add_dependencies(contract_test strata_plugin_${plugin})
  endif()
endforeach()
