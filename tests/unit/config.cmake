strata_test(config_test KIND unit ROOMS config SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/config_test.cpp ${CMAKE_CURRENT_LIST_DIR}/config_file_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/config_numbers_test.cpp ${CMAKE_CURRENT_LIST_DIR}/config_optimizer_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/config_precision_test.cpp)
