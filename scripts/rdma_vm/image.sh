# What scripts/rdma_vm.sh boots: Debian's kernel, unpacked, and an initial RAM file system of busybox, the modules and
# init.sh. The large parts are kept in the user's cache, one folder for each kernel. Sourced; needs fail and tell.

rdma_vm_modules=(virtio_pci virtio_console 9pnet_virtio 9p overlay dummy virtio_net crc32_generic rdma_rxe rdma_ucm)

# Sets cache: a folder to keep things in, $1 if the user's cannot be written.
find_cache() {
  cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/farleaf
  if ! mkdir -p "$cache" 2>/dev/null || [[ ! -w $cache ]]; then cache=$1; fi
  find "$cache" -mindepth 1 -maxdepth 1 -name 'rdma_vm*' -mtime +30 -exec rm -rf {} +
}

# The newest installed kernel that has its modules: sets kernel and version.
find_kernel() {
  local candidate
  kernel=
  while read -r candidate; do
    if [[ -r $candidate && -d /lib/modules/${candidate#/boot/vmlinuz-} ]]; then kernel=$candidate; fi
  done < <(printf '%s\n' /boot/vmlinuz-* | sort -V)
  [[ -n $kernel ]] || fail "there is no readable kernel /boot/vmlinuz-* with modules; install linux-image-amd64"
  version=${kernel#/boot/vmlinuz-}
}

# archive FOLDER TARGET
archive() { (cd "$1" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$2"; }

# copy_modules FOLDER: the modules and those that they need; FOLDER/order lists them as they are to be loaded.
copy_modules() {
  local module kind path _
  for module in "${rdma_vm_modules[@]}"; do
    /sbin/modprobe -S "$version" --show-depends "$module" >>"$1/needed" || fail "$kernel has no module $module"
  done
  while read -r kind path _; do
    [[ $kind == insmod && ! -e $1/${path##*/} ]] || continue
    cp "$path" "$1/"
    echo "${path##*/}" >>"$1/order"
  done <"$1/needed"
}

# Sets image: a folder with vmlinux and base.cpio.
prepare_image() {
  local key folder applet
  key=$({
    stat -c '%n %s %Y' "$kernel" "/lib/modules/$version/modules.dep" /bin/busybox
    cat "$scripts/rdma_vm/image.sh" "$scripts/rdma_vm/unpack_kernel.py"
  } | sha256sum)
  image=$cache/rdma_vm-$version-${key:0:16}
  if [[ -d $image ]]; then
    touch "$image"
    return
  fi
  tell "unpacking $kernel to $image"
  folder=$(mktemp -d "$cache/rdma_vm.XXXXXX")
  mkdir -p "$folder/files/bin" "$folder/files/modules"
  cp /bin/busybox "$folder/files/bin/busybox"
  for applet in $(/bin/busybox --list); do
    [[ $applet == busybox ]] || ln -s busybox "$folder/files/bin/$applet"
  done
  copy_modules "$folder/files/modules"
  archive "$folder/files" "$folder/base.cpio"
  python3 "$scripts/rdma_vm/unpack_kernel.py" "$kernel" "$folder/vmlinux" || fail "cannot unpack $kernel"
  rm -r "$folder/files"
  # Another run may have been faster.
  mv -T "$folder" "$image" 2>/dev/null || rm -r "$folder"
}

# write_initrd FOLDER: FOLDER/files (init's settings and the command) added to the image, as FOLDER/initrd.
write_initrd() {
  cp "$scripts/rdma_vm/init.sh" "$1/files/init"
  chmod 755 "$1/files/init"
  archive "$1/files" "$1/run.cpio"
  cat "$image/base.cpio" "$1/run.cpio" >"$1/initrd"
}
