strata_test(optim_loss_scale_test KIND unit TORCH
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/optim_loss_scale_test.cpp ROOMS optim formats)
