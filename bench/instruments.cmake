# The programs behind the tool's own instruments (docs/how/instruments.md). As the workloads, they are
# linked with the system's malloc and served by whatever is preloaded, but for the pair
# loops that have one of the library's archives linked in.

add_executable(bench_sweep sweep.cc)
add_executable(bench_counts counts.cc)
add_executable(bench_recorded recorded.cc)
add_executable(bench_stacks stacks.cc)
add_executable(bench_himeno himeno.c)
add_executable(bench_pair_floor pair_floor.c)
add_executable(bench_pair_loop pair_loop.c)

add_executable(bench_pair_loop_static pair_loop.c)
target_link_libraries(bench_pair_loop_static PRIVATE larder_static)

add_executable(bench_pair_loop_prefixed pair_loop.c)
target_compile_definitions(bench_pair_loop_prefixed PRIVATE BENCH_PREFIXED)
target_link_libraries(bench_pair_loop_prefixed PRIVATE larder_prefixed)

add_executable(bench_pair_loop_inline pair_loop.c)
target_compile_definitions(bench_pair_loop_inline PRIVATE BENCH_INLINE)
target_link_libraries(bench_pair_loop_inline PRIVATE larder_static)

# The page map is internal to the library: its objects, not its exports.
add_executable(bench_page_map page_map.cc
  $<TARGET_OBJECTS:larder_diagnostics> $<TARGET_OBJECTS:larder_core> $<TARGET_OBJECTS:larder_tables>
  $<TARGET_OBJECTS:larder_entry_prefixed>)
target_include_directories(bench_page_map PRIVATE ${PROJECT_SOURCE_DIR}/alloc
  ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(bench_page_map PRIVATE ${CMAKE_DL_LIBS})

# -O3 for the stencil alone, as the benchmark is commonly built: its loop is to be vectorised.
target_compile_options(bench_himeno PRIVATE -O3)

set(INSTRUMENTS sweep counts recorded stacks himeno pair_floor pair_loop pair_loop_static pair_loop_prefixed
                pair_loop_inline page_map)
foreach(instrument ${INSTRUMENTS})
  target_compile_features(bench_${instrument} PRIVATE cxx_std_20)
  target_compile_options(bench_${instrument} BEFORE PRIVATE ${BENCH_FLAGS})
  target_link_libraries(bench_${instrument} PRIVATE Threads::Threads)
  add_dependencies(bench_workloads bench_${instrument})
endforeach()

# What bench_stacks loads, and what `larder lab stacks` preloads beside the recorder.
foreach(plugin one two)
  add_library(bench_plugin_${plugin} MODULE plugin.cc)
  target_compile_options(bench_plugin_${plugin} PRIVATE ${BENCH_FLAGS})
endforeach()
target_compile_definitions(bench_plugin_one PRIVATE PLUGIN_ROOM=40)
target_compile_definitions(bench_plugin_two PRIVATE PLUGIN_ROOM=200)
add_library(bench_sampler MODULE sampler.c)
target_compile_options(bench_sampler PRIVATE ${BENCH_FLAGS})
target_link_libraries(bench_sampler PRIVATE ${CMAKE_DL_LIBS} gcc_s)
target_link_libraries(bench_stacks PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(bench_workloads bench_plugin_one bench_plugin_two bench_sampler)
