# The source tarball: complete, the same each time, and enough to build from without git.
dist=$root/dist sources=$root/dist/larder-$version

# An xz that takes no seconds, and a git that is not there.
stub() {
  mkdir "$root/$1" && printf '#!/bin/sh\n%s\n' "$3" >"$root/$1/$2" && chmod +x "$root/$1/$2"
}
stub fast xz "exec $(command -v xz) -0 --threads=1"
stub no-git git 'exit 127'

dist_makes() { PATH=$root/fast:$PATH package/dist "$dist"; }

dist_has_every_file() {
  diff <(git ls-tree -r --name-only HEAD | sort) \
    <(tar -tf "$dist/larder-$version.tar.xz" | sed -n "s|^larder-$version/||p" | grep -v '/$' | grep . | sort)
}

# In another clone, with other settings.
dist_is_the_same_elsewhere() {
  git clone -q --no-hardlinks . "$root/clone" && git -C "$root/clone" config tar.umask 0077 &&
    cp package/dist "$root/clone/package/dist" &&
    (umask 0077 && PATH=$root/fast:$PATH TZ=Asia/Tokyo "$root/clone/package/dist" "$root/again") &&
    cmp "$dist/larder-$version.tar.xz" "$root/again/larder-$version.tar.xz"
}

without_git() { PATH=$root/no-git:$PATH "$@"; }

crates_fit() { (cd "$sources" && cargo metadata --locked --offline --format-version 1 --quiet >/dev/null); }

check dist dist_makes
check dist-has-every-file dist_has_every_file
check dist-is-the-same-elsewhere dist_is_the_same_elsewhere
check dist-unpacks tar -xf "$dist/larder-$version.tar.xz" -C "$dist"
check dist-is-no-repository refuses_with "is no git clone" "$sources/package/dist" "$dist"
check dist-configures without_git cmake -S "$sources" --preset release
check dist-has-its-crates crates_fit
if [ $long = yes ]; then
  check dist-builds without_git make -C "$sources" build
fi
