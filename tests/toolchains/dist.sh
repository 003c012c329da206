# The source tarball: complete, the same each time, and enough to build from without git.
dist=$root/dist sources=$root/dist/larder-$version

dist_has_every_file() {
  diff <(git ls-tree -r --name-only HEAD | sort) \
    <(tar -tf "$dist/larder-$version.tar.xz" | sed -n "s|^larder-$version/||p" | grep -v '/$' | grep . | sort)
}

# In another clone, with other settings. Both are compared before they are compressed, which takes seconds.
dist_is_the_same_elsewhere() {
  mkdir "$root/stub" && printf '#!/bin/sh\nexec cat\n' >"$root/stub/xz" && chmod +x "$root/stub/xz" &&
    git clone -q --no-hardlinks . "$root/clone" && git -C "$root/clone" config tar.umask 0077 &&
    cp package/dist "$root/clone/package/dist" &&
    (umask 0077 && PATH=$root/stub:$PATH TZ=Asia/Tokyo "$root/clone/package/dist" "$root/again") &&
    xz -dc "$dist/larder-$version.tar.xz" | cmp - "$root/again/larder-$version.tar.xz"
}

# PATH without git.
without_git() {
  mkdir -p "$root/no-git" && printf '#!/bin/sh\nexit 127\n' >"$root/no-git/git" && chmod +x "$root/no-git/git" &&
    PATH=$root/no-git:$PATH "$@"
}

crates_fit() { (cd "$sources" && cargo metadata --locked --offline --format-version 1 --quiet >/dev/null); }

check dist package/dist "$dist"
check dist-has-every-file dist_has_every_file
check dist-is-the-same-elsewhere dist_is_the_same_elsewhere
check dist-unpacks tar -xf "$dist/larder-$version.tar.xz" -C "$dist"
check dist-is-no-repository refuses_with "is no git clone" "$sources/package/dist" "$dist"
check dist-configures without_git cmake -S "$sources" --preset release
check dist-has-its-crates crates_fit
[ $long = no ] || check dist-builds without_git make -C "$sources" build
