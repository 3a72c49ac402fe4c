strata_test(data_test KIND unit PROCESSORS 2 ROOMS data SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/data_bpe_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/data_bpe_files_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/data_bpe_trainer_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/data_sampler_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/data_text_dataset_test.cpp)
