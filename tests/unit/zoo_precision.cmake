strata_test(zoo_precision_test KIND unit TORCH LABELS libtorch
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/zoo_precision_test.cpp ROOMS zoo)
