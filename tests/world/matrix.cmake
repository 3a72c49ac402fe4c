# Every strategy beside one process: the whole matrix, random draws, windows, norms, capabilities.
strata_test(matrix_test KIND world TORCH ROOMS train PROCESSORS 2 TIMEOUT 300
  DEPENDS strata_plugin_ddp strata_plugin_fsdp strata_plugin_zero strata_ccl_cpu_lib SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/capabilities_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/exactness_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/matrix_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/odd_model.cpp
  ${CMAKE_CURRENT_LIST_DIR}/one_process.cpp
  ${CMAKE_CURRENT_LIST_DIR}/search_draw.cpp
  ${CMAKE_CURRENT_LIST_DIR}/search_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tasks.cpp
  ${CMAKE_CURRENT_LIST_DIR}/trained.cpp)
