strata_test(hooks_test KIND unit TORCH LABELS libtorch ROOMS hooks SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/hooks_failure_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/hooks_graph_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/hooks_plan_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/hooks_recompute_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/hooks_sink_test.cpp
)
