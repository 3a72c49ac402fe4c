# Strategies under a host without LibTorch: training, numbers, failures.
strata_test(strategies_test KIND world ROOMS device plugin PROCESSORS 2 TIMEOUT 120
  DEPENDS strata_plugin_ddp strata_plugin_fsdp strata_plugin_zero strata_ccl_cpu_lib SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/strategies_attach_failure_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/strategies_dtypes_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/strategies_failure_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/strategies_numbers_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/strategies_training_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/toy_host.cpp
  ${CMAKE_CURRENT_LIST_DIR}/toy_model.cpp)

# What they share: gradients of a rank that updates slices.
strata_test(sliced_gradients_test KIND world ROOMS sdk device plugin PROCESSORS 2
  DEPENDS strata_ccl_cpu_lib SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/sliced_gradients_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/toy_model.cpp)
