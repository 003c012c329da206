"""Larder's libraries and headers for Conan 2, built from the repository that this file lies in.

The package has what `make install` has below lib/ and include/, so programs use its own LarderConfig.cmake:
find_package(Larder) with all targets.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

SOURCES = ("CMakeLists.txt", "Cargo.toml", "LICENSE", "alloc/*", "include/*", "package/CMakeLists.txt", "package/*.in")


class Larder(ConanFile):
    name = "larder"
    description = "A drop-in malloc with a heap profile and a leak checker, and C headers that save allocations"
    license = "Apache-2.0"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    @property
    def repository(self):
        """Until it is exported, the recipe lies in it."""
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        manifest = load(self, os.path.join(self.repository, "Cargo.toml"))
        self.version = re.search(r'^version = "(.+)"$', manifest, re.MULTILINE)[1]

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, self.repository, self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("Larder is for Linux on x86-64 or aarch64 with glibc, not for "
                                            f"{self.settings.os} on {self.settings.arch}")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["BUILD_TESTING"] = False
        toolchain.cache_variables["CMAKE_INSTALL_LIBDIR"] = "lib"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.set_property("pkg_config_name", "none")
        self.cpp_info.builddirs = ["lib/cmake/Larder"]
        self.cpp_info.libs = ["larder"]
