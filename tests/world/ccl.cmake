strata_test(ccl_world_test KIND world PROCESSORS 2 ROOMS sdk LIBRARIES Threads::Threads DEPENDS strata_ccl_cpu_lib SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/ccl_communicator_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/ccl_fixture.cpp
  ${CMAKE_CURRENT_LIST_DIR}/ccl_values_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/ccl_world_test.cpp
)
