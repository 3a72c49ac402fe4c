# GPT-2's true vocabulary comes from a package that `tools/setup.sh --tests` installs.
strata_test(gpt2_vocabulary_test KIND parity ROOMS data
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/gpt2_vocabulary_test.cpp)
target_compile_definitions(gpt2_vocabulary_test PRIVATE STRATA_TEST_PACKAGES="${STRATA_TEST_PACKAGES}")
