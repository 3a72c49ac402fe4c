# What the documents say: their commands run, their flags exist.
foreach(what run flags)
  add_test(NAME Documents.${what} COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/documents_check.py
    ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${what})
  set_tests_properties(Documents.${what} PROPERTIES LABELS process TIMEOUT 120 PROCESSORS 2)
endforeach()
