strata_test(command_precision_test KIND process DEPENDS strata abi_plugin_plain_c PROCESSORS 2 TIMEOUT 120
  LIBRARIES nlohmann_json::nlohmann_json SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/command_precision_test.cpp ${CMAKE_CURRENT_LIST_DIR}/command_fixture.cpp)
