# Installation: see cmake/README.md.
set(FARLEAF_INCLUDE_DIR ${CMAKE_INSTALL_INCLUDEDIR}/farleaf)
set(FARLEAF_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/farleaf)

target_include_directories(farleaf_base INTERFACE $<INSTALL_INTERFACE:${FARLEAF_INCLUDE_DIR}>)
set_target_properties(farleaf_base PROPERTIES EXPORT_NAME base)

install(TARGETS farleaf_base farleaf_client EXPORT farleafClientTargets COMPONENT devel)
install(TARGETS farleaf_dsm farleaf_index EXPORT farleafTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT devel)
foreach(export farleafClientTargets farleafTargets)
  install(EXPORT ${export} NAMESPACE farleaf:: DESTINATION ${FARLEAF_PACKAGE_DIR} COMPONENT devel)
endforeach()
foreach(folder client dsm index)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${FARLEAF_INCLUDE_DIR}
          COMPONENT devel FILES_MATCHING PATTERN "*.h" PATTERN examples EXCLUDE)
endforeach()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/farleafConfig.cmake.in
  ${PROJECT_BINARY_DIR}/farleafConfig.cmake INSTALL_DESTINATION ${FARLEAF_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/farleafConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/farleafConfig.cmake
              ${PROJECT_BINARY_DIR}/farleafConfigVersion.cmake
        DESTINATION ${FARLEAF_PACKAGE_DIR} COMPONENT devel)
