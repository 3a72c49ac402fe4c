strata_test(ccl_process_test KIND process PROCESSORS 2 ROOMS sdk LIBRARIES Threads::Threads DEPENDS strata_ccl_cpu_lib
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/ccl_process_test.cpp)
