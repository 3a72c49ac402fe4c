strata_test(precision_test KIND world TORCH SOURCES ${CMAKE_CURRENT_LIST_DIR}/precision_test.cpp ROOMS train
  PROCESSORS 2 TIMEOUT 120 DEPENDS strata_plugin_ddp strata_plugin_fsdp strata_plugin_zero strata_ccl_cpu_lib)
