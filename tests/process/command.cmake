# The command as a user starts it.
foreach(name command command_optimizer command_refusal launchers bench)
  strata_test(${name}_test KIND process DEPENDS strata PROCESSORS 2 TIMEOUT 120 LIBRARIES nlohmann_json::nlohmann_json
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/${name}_test.cpp ${CMAKE_CURRENT_LIST_DIR}/command_fixture.cpp)
endforeach()
