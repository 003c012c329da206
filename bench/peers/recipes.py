"""The peers: the sources of each, and how its own project builds the library to preload.

Flags are those of each project's release build; what deviates is said in the recipe's note. Sources are
unchanged. A recipe's text is part of its key in the cache: an edit here rebuilds that peer alone.
"""

import glob
import os
import re
import shutil
from dataclasses import dataclass, field

import elf
import workshop


@dataclass(frozen=True)
class Recipe:
    name: str
    version: str
    source: str
    how: str
    build: object  # (Workshop) -> path of the library
    note: str = ""
    # Variables that the project's documentation requires on this kind of system.
    environment: dict = field(default_factory=dict)
    # Functions of the library that must return true in a running program.
    must_be_true: tuple = ()
    # What to build where the archive no longer has this version.
    instead: "Recipe | None" = None


def mimalloc(folder, sources):
    """Flags of its CMakeLists.txt: Release, shared, MI_OVERRIDE. (It includes files that the crate lacks.)"""
    def build(shop):
        source = os.path.join(shop.crate("libmimalloc-sys"), "c_src/mimalloc", folder)
        flags = ["-O3", "-DNDEBUG", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec",
                 "-fno-builtin-malloc", "-DMI_MALLOC_OVERRIDE", "-DMI_BUILD_RELEASE",
                 "-DMI_CMAKE_BUILD_TYPE=release", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT",
                 "-I", os.path.join(source, "include")]
        return shop.compile([os.path.join(source, "src", name + ".c") for name in sources.split()],
                            lambda _: flags, ["-lpthread", "-lrt", "-latomic", "-Wl,-z,defs"], "libmimalloc.so")
    return build


def jemalloc(shop):
    crate = shop.crate("tikv-jemalloc-sys")
    source = shop.path("jemalloc")
    shutil.copytree(os.path.join(crate, "jemalloc"), source)
    shutil.copy(os.path.join(crate, "configure", "configure"), source)
    # The crate's version is "0.7.1+5.3.1-0-g<commit>": what follows '+' is what configure wants to know.
    with open(os.path.join(crate, "Cargo.toml"), encoding="utf-8") as manifest:
        version = re.search(r'^version = "[^+]*\+(.*)"', manifest.read(), re.MULTILINE)[1]
    compilers = [f"CC={workshop.cc()}", f"CXX={workshop.cxx()}"]
    shop.run(["sh", "configure", f"--with-version={version}", "--disable-doc", *compilers], folder=source)
    shop.run(["make", f"-j{shop.jobs}", "build_lib_shared"], folder=source)
    return os.path.join(source, "lib", "libjemalloc.so.2")


def snmalloc(shop):
    """With clang: its documentation advises against gcc, which calls libatomic for 128-bit atomics."""
    source = os.path.join(shop.crate("snmalloc-sys"), "upstream")
    shop.run(["cmake", "-S", source, "-B", shop.path("build"), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
              "-DSNMALLOC_BUILD_TESTING=OFF", f"-DCMAKE_CXX_COMPILER={workshop.CLANGXX}"])
    shop.run(["ninja", "-C", shop.path("build"), f"-j{shop.jobs}", "snmallocshim"])
    return shop.path("build", "libsnmallocshim.so")


def tcmalloc(shop):
    """The files that the crate's build script lists, and tcmalloc.cc with the names of libc.

    By clang, Google's own compiler: with gcc 12, pairs of small blocks take a tenth longer.
    """
    crate = shop.crate("libtcmalloc-sys")
    with open(os.path.join(crate, "build.rs"), encoding="utf-8") as script:
        listed = re.findall(r'"(c_src/[^"]*\.(?:cc|S))"', script.read())
    names = sorted({name for name in listed if "bridge" not in name} | {"c_src/tcmalloc/tcmalloc/tcmalloc.cc"})
    flags = ["-O2", "-DNDEBUG", "-fPIC", "-w", "-DTCMALLOC_INTERNAL_8K_PAGES",
             "-I", os.path.join(crate, "c_src/abseil-cpp"), "-I", os.path.join(crate, "c_src/tcmalloc")]
    return shop.compile([os.path.join(crate, name) for name in names],
                        lambda source: flags if source.endswith(".S") else ["-std=c++17", *flags],
                        # Its calls of itself are direct, like when it is linked in.
                        ["-lpthread", "-Wl,-z,defs,-Bsymbolic-functions"], "libtcmalloc.so", workshop.CLANGXX)


def hardened_malloc(shop):
    """Flags of its Makefile with config/light.mk, CONFIG_NATIVE and link-time optimization included."""
    source = os.path.join(shop.crate("hardened-malloc-sys"), "vendor/hardened-malloc")
    with open(os.path.join(source, "config/light.mk"), encoding="utf-8") as settings:
        values = dict(re.findall(r"^(CONFIG_\w+) := (\S+)", settings.read(), re.MULTILINE))
    kept_names = ("CONFIG_SEAL_METADATA", "CONFIG_EXTENDED_SIZE_CLASSES", "CONFIG_LARGE_SIZE_CLASSES",
                  "CONFIG_CLASS_REGION_SIZE", "CONFIG_STATS", "CONFIG_SELF_INIT", "CONFIG_LABEL_MEMORY")
    # Its Makefile drops the prefix of all others.
    defines = [f"-D{name if name in kept_names else name.removeprefix('CONFIG_')}={value}"
               for name, value in values.items()
               if name not in ("CONFIG_WERROR", "CONFIG_NATIVE", "CONFIG_CXX_ALLOCATOR", "CONFIG_UBSAN")]
    common = ["-pipe", "-O3", "-flto", "-fPIC", "-fvisibility=hidden", "-fno-plt", "-fstack-clash-protection",
              "-fcf-protection", "-fstack-protector-strong", "-march=native", "-D_GNU_SOURCE",
              "-I", os.path.join(source, "include"), "-I", source, *defines]
    # gcc has C23's alignas and thread_local without a header from version 13 on.
    c_only = ["-std=c2x", "-include", "stdalign.h", "-include", "threads.h"]
    names = ["chacha.c", "h_malloc.c", "memory.c", "pages.c", "random.c", "util.c", "new.cc"]
    return shop.compile([os.path.join(source, name) for name in names],
                        lambda name: (c_only if name.endswith(".c") else
                                      ["-std=c++17", "-fsized-deallocation"]) + common,
                        ["-O3", "-flto", "-fPIC", "-march=native", "-fvisibility=hidden", "-fno-plt",
                         "-Wl,-O1,--as-needed,-z,defs,-z,relro,-z,now,-z,nodlopen,-z,text", "-lpthread"],
                        "libhardened_malloc-light.so")


def rpmalloc_1(shop):
    source = os.path.join(shop.crate("rpmalloc-sys"), "rpmalloc/rpmalloc")
    flags = ["-O3", "-DNDEBUG", "-std=c11", "-D_GNU_SOURCE=1", "-funit-at-a-time", "-fstrict-aliasing",
             "-fno-math-errno", "-ffinite-math-only", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec",
             "-w", "-DENABLE_OVERRIDE=1", "-DENABLE_PRELOAD=1"]
    return shop.compile([os.path.join(source, "rpmalloc.c")], lambda _: flags,
                        ["-lpthread", "-ldl", "-Wl,-z,defs"], "librpmalloc.so")


def of_newer_debian(package, version, checksum, library):
    """A library as a newer Debian built it, its references to C23's strtol pointed to strtol."""
    def build(shop):
        folder = shop.debian_package("forky", package, version, checksum)
        found = [path for path in glob.glob(os.path.join(folder, "usr/lib/*", library)) if os.path.isfile(path)]
        if len(found) != 1:
            raise workshop.Failure(f"{package} {version} has no {library}")
        try:
            elf.retarget(found[0])
        except elf.NotRetargetable as error:
            raise workshop.Gone(f"{library} of {package} {version}: {error}") from error
        return found[0]
    return build


def installed(pattern):
    """A library of an installed package, used where it is."""
    def build(_):
        found = glob.glob(pattern)
        if not found:
            raise workshop.Failure(f"{pattern} is missing: run 'scripts/setup bench'")
        return os.path.realpath(found[0])
    build.in_place = True
    return build


RECIPES = (
    Recipe("mimalloc-3", "3.3.2", "crate libmimalloc-sys 0.1.49", "gcc -O3, initial-exec TLS, MI_OVERRIDE",
           mimalloc("v3", "alloc alloc-aligned alloc-posix arena arena-meta bitmap heap init libc options os page "
                          "page-map random stats theap threadlocal prim/prim")),
    Recipe("mimalloc-2", "2.3.2", "crate libmimalloc-sys 0.1.49, feature v2", "gcc -O3, initial-exec TLS, MI_OVERRIDE",
           mimalloc("v2", "alloc alloc-aligned alloc-posix arena bitmap heap init libc options os page random "
                          "segment segment-map stats prim/prim")),
    Recipe("jemalloc", "5.3.1", "crate tikv-jemalloc-sys 0.7.1", "its own configure and make, no option changed",
           jemalloc, note="not the crate's settings, which leave out statistics and operator new"),
    Recipe("snmalloc", "0.7.6", "crate snmalloc-sys 0.7.6", "its own CMake, Release, target snmallocshim",
           snmalloc, note="by clang: its documentation advises against gcc"),
    Recipe("tcmalloc", "2025-06", "crate libtcmalloc-sys 0.1.14", "clang -O2, 8 KiB pages, caches per CPU", tcmalloc,
           note="without the crate's patch that asks for huge pages; glibc leaves rseq to it, which its "
                "documentation asks for",
           environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"},
           must_be_true=("MallocExtension_Internal_GetPerCpuCachesActive",)),
    Recipe("rpmalloc", "2.0.1", "Debian forky, librpmalloc1 2.0.1-1", "as packaged; strtol of C23 pointed to strtol",
           of_newer_debian("librpmalloc1", "2.0.1-1",
                           "e041791e686965a1830ad582d8ea6476cbe4cf1a2f2170f9ac74cf54406b93c4", "librpmalloc.so.1.0.0"),
           instead=Recipe("rpmalloc", "1.4.3", "crate rpmalloc-sys 0.2.3", "gcc -O3, ENABLE_OVERRIDE, ENABLE_PRELOAD",
                          rpmalloc_1, note="old: the archive has not 2.0.1")),
    Recipe("gperftools", "2.18.1", "Debian forky, libtcmalloc-minimal4t64 2.18.1-2",
           "as packaged; strtol of C23 pointed to strtol",
           of_newer_debian("libtcmalloc-minimal4t64", "2.18.1-2",
                           "a0126b0d0afc7c03276715ea6406330c078ca10b931e8911791fc86bfba244cc", "libtcmalloc_minimal.so.4.6.5"),
           instead=Recipe("gperftools", "2.10", "Debian, libtcmalloc-minimal4", "as packaged",
                          installed("/usr/lib/*/libtcmalloc_minimal.so.4"), note="old: the archive has not 2.18.1")),
    Recipe("hardened-malloc", "2026071503", "crate hardened-malloc-sys 16.0.2026071503",
           "flags of its Makefile, config/light.mk", hardened_malloc,
           note="light; wants a higher vm.max_map_count than the usual 65,530"),
    Recipe("jemalloc-5.3.0", "5.3.0", "Debian, libjemalloc2", "as packaged", installed("/usr/lib/*/libjemalloc.so.2")),
    Recipe("mimalloc-2.0", "2.0.9", "Debian, libmimalloc2.0", "as packaged", installed("/usr/lib/*/libmimalloc.so.2")),
)
