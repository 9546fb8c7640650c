# Installs BUILD_DIR's devel component, copies CONSUMER out of the tree, configures it against the
# installation, builds it and runs it. All in WORK_DIR, which is emptied first.
foreach(name BUILD_DIR CONSUMER WORK_DIR COMPILER)
  if(NOT DEFINED ${name})
    message(FATAL_ERROR "-D${name}= is needed")
  endif()
endforeach()
file(REMOVE_RECURSE ${WORK_DIR})
file(COPY ${CONSUMER}/ DESTINATION ${WORK_DIR}/source)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message(STATUS "${output}")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGV}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --component devel --prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} -S ${WORK_DIR}/source -B ${WORK_DIR}/build -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/consumer)
