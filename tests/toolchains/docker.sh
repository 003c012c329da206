# The image that package/docker makes, built and run by buildah without a daemon, as root; its base is made by
# debootstrap instead of fetched. Needs these two from apt, and its mirrors.
packages=$root/packages

in_store() { STORAGE_DRIVER=vfs buildah --root "$root/store" --runroot "$root/runroot" "$@"; }

docker_has_a_base() {
  local container
  debootstrap --variant=minbase bookworm "$root/base" && container=$(in_store from scratch) &&
    in_store add -q "$container" "$root/base" / && in_store commit -q "$container" localhost/base
}

docker_builds() {
  package/deb/build out "$packages" &&
    in_store build --isolation chroot --from localhost/base -t localhost/larder -f package/docker/Dockerfile "$packages" &&
    container=$(in_store from localhost/larder)
}

docker_starts_larder() {
  in_store inspect --type image --format '{{.OCIv1.Config.Entrypoint}}' localhost/larder | grep -x '\[larder\]'
}

in_image() { in_store run --isolation chroot "$container" -- "$@"; }

docker_records() {
  in_image larder record -o /tmp/my.trace -- sh -c 'exit 0' && in_image larder report /tmp/my.trace |
    tee /dev/stderr | grep '^Mallocs: [1-9]'
}

docker_runs_on_larder() { in_image larder run -- cat /proc/self/maps | grep liblarder.so; }

check docker-has-a-base docker_has_a_base
check docker-builds docker_builds
check docker-starts-larder docker_starts_larder
check docker-records docker_records
check docker-runs-on-larder docker_runs_on_larder
