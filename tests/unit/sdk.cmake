# What strategies share: arithmetic, the model's table, the ring of slots.
strata_test(sdk_test KIND unit ROOMS sdk device SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/sdk_arithmetic_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/sdk_model_table_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/sdk_slot_ring_test.cpp)
