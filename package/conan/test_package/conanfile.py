"""Builds the programs of tests/toolchains on each target of the package, and runs them."""

import io
import os

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class LarderTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    @property
    def version_wanted(self):
        return str(self.dependencies["larder"].ref.version)

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.cache_variables["LANGUAGES"] = "C"
        toolchain.cache_variables["WANTED"] = self.version_wanted
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder="../../../tests/toolchains")
        cmake.build()

    def test(self):
        if not can_run(self):
            return
        for name in ("larder", "minimal", "hardened", "static", "prefixed"):
            said = io.StringIO()
            self.run(os.path.join(self.cpp.build.bindir, name), stdout=said, env="conanrun")
            if said.getvalue().strip() != self.version_wanted:
                raise ConanException(f"{name} prints {said.getvalue()!r}, not the version")
        self.run(os.path.join(self.cpp.build.bindir, "kit"), env="conanrun")
