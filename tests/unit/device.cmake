add_library(device_ccl_double MODULE ${CMAKE_CURRENT_LIST_DIR}/device_ccl_double.c)
set_target_properties(device_ccl_double PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_library(device_cuda_double MODULE ${CMAKE_CURRENT_LIST_DIR}/device_cuda_double.c)
set_target_properties(device_cuda_double PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_include_directories(device_cuda_double PRIVATE ${CMAKE_BINARY_DIR}/include)

strata_test(device_test KIND unit PROCESSORS 2 ROOMS device DEPENDS device_ccl_double device_cuda_double
  SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/device_cuda_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/device_kernels_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/device_memory_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/device_order_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/device_services_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/device_streams_test.cpp)
target_compile_definitions(device_test PRIVATE
  STRATA_CCL_DOUBLE="$<TARGET_FILE:device_ccl_double>"
  STRATA_CUDA_DOUBLE="$<TARGET_FILE:device_cuda_double>")
