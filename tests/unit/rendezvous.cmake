strata_test(rendezvous_test KIND unit TORCH LABELS libtorch ROOMS rendezvous SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/rendezvous_place_test.cpp ${CMAKE_CURRENT_LIST_DIR}/rendezvous_store_test.cpp)
