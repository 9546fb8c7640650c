#!/usr/bin/env bash
# The Debian 12 packages that building, testing and the quickstart need, listed once. Sourced by the
# other scripts, or run by itself; installs what is missing, and needs no network if nothing is.

farleaf_packages=(
  build-essential cmake ninja-build pkg-config ccache
  libboost1.81-dev libssl-dev libisal-dev libfmt-dev libspdlog-dev
  libjemalloc-dev liblz4-dev libzstd-dev zlib1g-dev libmemcached-dev libmemcached-tools memcached python3-pymemcache python3-prometheus-client
  redis-tools redis-server python3-redis
  librocksdb-dev
  libhdrhistogram-java openjdk-17-jre-headless
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
  libgtest-dev libbenchmark-dev libabsl-dev
  libibverbs-dev librdmacm-dev ibverbs-providers
  liburing-dev
  libzookeeper-mt-dev zookeeper
  python3
)

# What scripts/rdma_vm.sh needs besides.
farleaf_rdma_vm_packages=(
  qemu-system-x86 linux-image-amd64 busybox-static cpio kmod zstd python3
  iproute2 rdma-core ibverbs-providers ibverbs-utils rdmacm-utils perftest
)

# What scripts/bench.py and the plots of scripts/figures need besides; chromium is for the test that looks at a report.
farleaf_figures_packages=(python3-matplotlib chromium)

# install_packages [PACKAGE...]: those, or farleaf_packages.
install_packages() {
  local package missing=()
  (($# > 0)) || set -- "${farleaf_packages[@]}"
  for package in "$@"; do
    if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
      missing+=("$package")
    fi
  done
  ((${#missing[@]} == 0)) && return 0
  echo "installing: ${missing[*]}"
  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "these packages are missing, and there is no sudo: as root, run" >&2
      echo "  apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -q -y --no-install-recommends "${missing[@]}"
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  set -euo pipefail
  case "${1:-}" in
    "") install_packages ;;
    figures) install_packages "${farleaf_figures_packages[@]}" ;;
    *) echo "usage: install_packages.sh [figures]" >&2; exit 2 ;;
  esac
fi
