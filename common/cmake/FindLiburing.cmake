# liburing, optional: without it the engine io_uring of common/storage says so, and threads replace it. Static
# if liburing.a exists, so that a program also runs on machines without the library.
#   Liburing::liburing  header and library
# Sets Liburing_FOUND.
find_path(LIBURING_INCLUDE_DIR liburing.h)
find_library(LIBURING_LIBRARY NAMES liburing.a uring)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Liburing DEFAULT_MSG LIBURING_LIBRARY LIBURING_INCLUDE_DIR)
mark_as_advanced(LIBURING_INCLUDE_DIR LIBURING_LIBRARY)
if(Liburing_FOUND AND NOT TARGET Liburing::liburing)
  add_library(Liburing::liburing UNKNOWN IMPORTED)
  set_target_properties(Liburing::liburing PROPERTIES
    IMPORTED_LOCATION "${LIBURING_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${LIBURING_INCLUDE_DIR}")
endif()
