strata_test(checkpoint_test KIND unit SOURCES ${CMAKE_CURRENT_LIST_DIR}/checkpoint_test.cpp ROOMS checkpoint)
