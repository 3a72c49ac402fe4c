strata_test(zoo_gpt2_test KIND unit TORCH SOURCES ${CMAKE_CURRENT_LIST_DIR}/zoo_gpt2_test.cpp ROOMS zoo)
strata_test(optim_test KIND unit TORCH LABELS libtorch ROOMS optim SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/optim_test.cpp ${CMAKE_CURRENT_LIST_DIR}/optim_norm_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/optim_schedule_test.cpp)
strata_test(zoo_generate_test KIND unit TORCH SOURCES ${CMAKE_CURRENT_LIST_DIR}/zoo_generate_test.cpp ROOMS zoo)
strata_test(zoo_layers_test KIND unit TORCH LABELS libtorch
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/zoo_layers_test.cpp ROOMS zoo)
strata_test(zoo_training_test KIND unit TORCH LABELS libtorch
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/zoo_training_test.cpp ROOMS zoo optim)
