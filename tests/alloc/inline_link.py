#!/usr/bin/env python3
"""Links programs with larder/inline.h: only with a library of its version, and new only with liblarder.a.

Usage: inline_link.py CC CXX INCLUDE LIBRARIES
"""

import pathlib
import subprocess
import sys
import tempfile

PROGRAM = """
#include <larder/inline.h>
int main(void) {
  int sum = 0;
  for (int i = 0; i < 1000; ++i) {
    char* p = (char*)larder_malloc_inline(50);
    p[49] = (char)i;
    sum += p[49] - (char)i;
    larder_free_sized_inline(p, 50);
  }
  larder_free_inline(larder_malloc_inline(50));
  return sum;
}
"""
NEW = "int main() { delete new long[2]; }\n"


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    cc, cxx, include, libraries = sys.argv[1:]
    faults = []

    def build(what, compiler, program, archive, *options, missing=None):
        """With `missing`, the link must fail because that symbol is undefined, and for no other reason."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "program.cc" if compiler == cxx else "program.c")
            source.write_text(program)
            command = [compiler, "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{include}", *options,
                       source, f"{libraries}/lib{archive}.a", "-lpthread", "-ldl", "-o", f"{folder}/program"]
            done = subprocess.run(command, capture_output=True, text=True)
            if missing is not None:
                if done.returncode == 0 or f"undefined reference to `{missing}'" not in done.stderr:
                    faults.append(f"{what}: no word of {missing}: {done.stderr}")
            elif done.returncode != 0 or subprocess.run([f"{folder}/program"]).returncode != 0:
                faults.append(f"{what}: {done.stderr}")

    for archive in ("larder", "larder_prefixed"):
        build(f"C, {archive}", cc, PROGRAM, archive)
        build(f"C++, {archive}", cxx, PROGRAM, archive)
        build(f"unoptimised, {archive}", cc, PROGRAM, archive, "-O0")
        build(f"position-independent, {archive}", cc, PROGRAM, archive, "-fPIC")
    build("static", cc, PROGRAM, "larder", "-static")
    build("another version", cc, "#include <larder/larder.h>\n#undef LARDER_VERSION_MINOR\n"
          "#define LARDER_VERSION_MINOR 999\n" + PROGRAM, "larder", missing="larder_inline_free_of_0_999_0")
    new = "#define LARDER_INLINE_NEW_DELETE\n" + PROGRAM.replace("int main(void)", "int pairs()") + NEW
    build("new", cxx, new, "larder")
    build("new, prefixed", cxx, new, "larder_prefixed", missing="larder_inline_new_of_0_1_0")
    for fault in faults:
        print(f"FAILED inline_link: {fault}", file=sys.stderr)
    if faults:
        sys.exit(1)
    print("inline_link: as it should be")


if __name__ == "__main__":
    main()
