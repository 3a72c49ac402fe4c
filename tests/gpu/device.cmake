if(TARGET strata_device_cuda)
  strata_test(device_gpu_test KIND gpu ROOMS device DEPENDS strata_device_cuda SOURCES
    ${CMAKE_CURRENT_LIST_DIR}/device_gpu_test.cpp)
endif()
