strata_test(ccl_unit_test KIND unit ROOMS ccl_cpu SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/ccl_memory_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/ccl_reduce_test.cpp
)

# Only where NCCL's own header is installed.
find_path(STRATA_NCCL_INCLUDE nccl.h)
find_path(STRATA_CUDART_INCLUDE cuda_runtime.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
if(STRATA_NCCL_INCLUDE AND STRATA_CUDART_INCLUDE)
  strata_test(nccl_api_test KIND unit ROOMS abi SOURCES ${CMAKE_CURRENT_LIST_DIR}/nccl_api_check.cpp)
  target_include_directories(nccl_api_test SYSTEM PRIVATE ${STRATA_NCCL_INCLUDE} ${STRATA_CUDART_INCLUDE})
else()
  message(STATUS "No nccl.h: NCCL's declarations are not compared with those of the SDK")
endif()
