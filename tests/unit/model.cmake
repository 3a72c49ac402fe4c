strata_test(model_test KIND unit TORCH LABELS libtorch ROOMS model SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/model_layout_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/model_storage_test.cpp
)
