# GPT-2's true vocabulary comes from a package that `tools/setup.sh --tests` installs.
if(DEFINED ENV{STRATA_DEPS_DIR})
  set(strata_test_packages $ENV{STRATA_DEPS_DIR}/test-packages)
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(strata_test_packages $ENV{XDG_CACHE_HOME}/strata/test-packages)
else()
  set(strata_test_packages $ENV{HOME}/.cache/strata/test-packages)
endif()
set(STRATA_TEST_PACKAGES ${strata_test_packages} CACHE PATH "Python packages that tests compare with")
strata_test(gpt2_vocabulary_test KIND parity ROOMS data
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/gpt2_vocabulary_test.cpp)
target_compile_definitions(gpt2_vocabulary_test PRIVATE STRATA_TEST_PACKAGES="${STRATA_TEST_PACKAGES}")
