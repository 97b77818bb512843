# cuDNN: the library that LibTorch loads, and its header-only frontend: the one that setup.sh installed,
# otherwise the system's. Needs LIBTORCH_SITE from FindLibTorch.
#   Cudnn::cudnn  headers and library
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS "${LIBTORCH_SITE}/nvidia/cudnn/include" NO_DEFAULT_PATH)
find_file(CUDNN_LIBRARY libcudnn.so.9 HINTS "${LIBTORCH_SITE}/nvidia/cudnn/lib" NO_DEFAULT_PATH)
find_path(CUDNN_FRONTEND_DIR cudnn_frontend.h HINTS "${CMAKE_SOURCE_DIR}/.deps/cudnn-frontend/include")
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  message(FATAL_ERROR "cuDNN not found beside LibTorch, in ${LIBTORCH_SITE}/nvidia/cudnn.\n"
    "  fix: common/setup/setup.sh --cuda, or pip install nvidia-cudnn-cu13 where that torch is")
endif()
if(NOT CUDNN_FRONTEND_DIR)
  message(FATAL_ERROR "cuDNN's frontend headers not found.\n"
    "  fix: common/setup/setup.sh --cuda; where there is no network, bring .deps/cudnn-frontend along")
endif()
message(STATUS "cuDNN: ${CUDNN_LIBRARY}")
add_library(Cudnn::cudnn SHARED IMPORTED)
set_target_properties(Cudnn::cudnn PROPERTIES IMPORTED_LOCATION "${CUDNN_LIBRARY}")
target_include_directories(Cudnn::cudnn SYSTEM INTERFACE "${CUDNN_FRONTEND_DIR}" "${CUDNN_INCLUDE_DIR}")
