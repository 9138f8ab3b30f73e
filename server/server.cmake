# SPDX-License-Identifier: Apache-2.0
# chxad, and what it needs beyond the client library. Included by the top file, not a folder of its own: the tests use these
# targets, too.
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(INIH REQUIRED IMPORTED_TARGET inih)
pkg_check_modules(CODECS REQUIRED IMPORTED_TARGET zlib libzstd liblz4 libbrotlidec)
find_path(ZOOKEEPER_INCLUDE zookeeper/zookeeper.h REQUIRED)
find_library(ZOOKEEPER_LIBRARY zookeeper_mt REQUIRED)

# llhttp: a shared library where the distribution has one (libllhttp-dev), else its C sources (Debian 12's node-llhttp).
add_library(chxa_llhttp INTERFACE)
pkg_check_modules(LLHTTP QUIET IMPORTED_TARGET libllhttp)
if(LLHTTP_FOUND)
  target_link_libraries(chxa_llhttp INTERFACE PkgConfig::LLHTTP)
else()
  find_path(LLHTTP_INCLUDE llhttp.h PATHS /usr/share/include/llhttp REQUIRED)
  find_path(LLHTTP_SOURCES llhttp.c PATHS /usr/share/llhttp REQUIRED)
  add_library(llhttp_sources STATIC ${LLHTTP_SOURCES}/api.c ${LLHTTP_SOURCES}/http.c
    ${LLHTTP_SOURCES}/llhttp.c)
  target_include_directories(llhttp_sources SYSTEM PUBLIC ${LLHTTP_INCLUDE})
  target_link_libraries(chxa_llhttp INTERFACE llhttp_sources)
endif()

function(chxa_layer name folder)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
  list(FILTER sources EXCLUDE REGEX "/main\\.c$")
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PRIVATE chxa_flags PUBLIC ${ARGN})
endfunction()

chxa_layer(chxa_proto proto PkgConfig::JANSSON)
chxa_layer(chxa_base server/base chxa_proto PkgConfig::CRYPTO PkgConfig::UV PkgConfig::INIH Threads::Threads)
chxa_layer(chxa_core server/core chxa_proto)
chxa_layer(chxa_store server/store chxa_base chxa_core PkgConfig::SQLITE PkgConfig::UV
  ${ZOOKEEPER_LIBRARY})
chxa_layer(chxa_ch server/ch chxa_base chxa_core PkgConfig::CURL PkgConfig::UV PkgConfig::CODECS)
chxa_layer(chxa_op server/op chxa_store chxa_ch)
chxa_layer(chxa_http server/http chxa_op chxa_llhttp)

add_executable(chxad server/main.c)
target_link_libraries(chxad PRIVATE chxa_flags chxa_http)
include(GNUInstallDirs)
install(TARGETS chxad RUNTIME DESTINATION ${CMAKE_INSTALL_SBINDIR})
install(FILES deploy/man/chxad.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES deploy/man/chxad.conf.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
