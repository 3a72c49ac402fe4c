# The program that the tests start, and two kinds of tests of it.
add_executable(launch_probe ${CMAKE_CURRENT_LIST_DIR}/launch_probe.cpp)
set_target_properties(launch_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(launch_probe PRIVATE strata_launch)
strata_test(launch_test KIND process ROOMS launch DEPENDS launch_probe PROCESSORS 2 SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/launch_test.cpp ${CMAKE_CURRENT_LIST_DIR}/launch_fixture.cpp)
strata_test(launch_fault_test KIND fault ROOMS launch DEPENDS launch_probe PROCESSORS 2 SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/../fault/launch_fault_test.cpp ${CMAKE_CURRENT_LIST_DIR}/launch_fixture.cpp)

# The store across ranks that are processes.
add_executable(store_probe ${CMAKE_CURRENT_LIST_DIR}/store_probe.cpp)
set_target_properties(store_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(store_probe PRIVATE strata_rendezvous)
foreach(ranks 1 2 3 4)
  add_test(NAME StoreAcrossProcesses.${ranks}Ranks COMMAND store_probe ${ranks})
  set_tests_properties(StoreAcrossProcesses.${ranks}Ranks PROPERTIES LABELS process TIMEOUT 60 PROCESSORS 2)
endforeach()
