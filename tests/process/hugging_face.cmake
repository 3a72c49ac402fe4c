# Folders in Hugging Face's format, against the Python packages that define it. They need Debian's python3 and python3-torch.
add_test(NAME HuggingFaceFolders
  COMMAND /usr/bin/python3 ${CMAKE_CURRENT_LIST_DIR}/hugging_face_check.py $<TARGET_FILE:strata>)
set_tests_properties(HuggingFaceFolders PROPERTIES LABELS process TIMEOUT 240 PROCESSORS 1 ENVIRONMENT
  "PYTHONPATH=${STRATA_TEST_PACKAGES};HF_HUB_OFFLINE=1;PYTHONDONTWRITEBYTECODE=1")
