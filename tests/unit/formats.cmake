strata_test(formats_test KIND unit ROOMS formats SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/formats_file_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/formats_safetensors_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/formats_safetensors_writer_test.cpp)
