# As Debian's musl-gcc compiles. It is for C: C++ gets the headers of gcc's own library, of which nothing is linked, and
# both get the kernel's. Debian's libgcc needs glibc, so unwinding is by the library that comes with Rust's target.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER musl-gcc)
set(CMAKE_CXX_COMPILER musl-gcc)

set(kernel ${CMAKE_BINARY_DIR}/kernel-headers)
file(MAKE_DIRECTORY ${kernel})
file(CREATE_LINK /usr/include/linux ${kernel}/linux SYMBOLIC)
file(CREATE_LINK /usr/include/asm-generic ${kernel}/asm-generic SYMBOLIC)
file(CREATE_LINK /usr/include/x86_64-linux-gnu/asm ${kernel}/asm SYMBOLIC)

execute_process(COMMAND gcc -dumpversion OUTPUT_VARIABLE gcc OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND rustc --print sysroot OUTPUT_VARIABLE rust OUTPUT_STRIP_TRAILING_WHITESPACE)
# libstdc++ asks for the version of glibc.
set(CMAKE_CXX_FLAGS_INIT "-isystem /usr/include/c++/${gcc} -isystem /usr/include/x86_64-linux-gnu/c++/${gcc}\
 '-D__GLIBC_PREREQ(major,minor)=0' -D__locale_t=locale_t -isystem ${CMAKE_CURRENT_LIST_DIR}/../alloc/compat/musl -idirafter ${kernel}")
set(CMAKE_C_FLAGS_INIT "-idirafter ${kernel}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,--eh-frame-hdr)
set(CMAKE_C_STANDARD_LIBRARIES ${rust}/lib/rustlib/x86_64-unknown-linux-musl/lib/self-contained/libunwind.a)
set(CMAKE_CXX_STANDARD_LIBRARIES ${CMAKE_C_STANDARD_LIBRARIES})
