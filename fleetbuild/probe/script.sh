#!/bin/sh
# shellcheck disable=SC2329 # the read_ functions are called by name
#
# The probe: prints one node's hardware and software in one round trip. Needs only a POSIX sh.
#   sh -s -- NONCE INSTALL_PATH WORKSPACE INTERPRETERS SECONDS  < script.sh
# INTERPRETERS are paths, apart by spaces, that the inventory sets for Ansible's modules. SECONDS is
# the limit of each section: a wedged driver or file system must not take the others with it.
# Each section is printed between "NONCE begin NAME" and "NONCE end NAME STATUS". A section that does
# not exist on the node prints nothing and ends with a status other than 0. The script writes nothing.

exec 2>/dev/null
nonce=$1 install_path=$2 workspace=$3 interpreters=$4 deadline=$5
LC_ALL=C
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/lib/wsl/lib
export LC_ALL PATH
unset OMP_NUM_THREADS OMP_THREAD_LIMIT LD_PRELOAD CDPATH
cd /

have() { command -v "$1" >/dev/null; }

newline='
'

# --- Facts from the kernel ---

read_uname() { uname -srm; }

read_cpuinfo() { cat /proc/cpuinfo; }

read_os_release() { cat /etc/os-release || cat /usr/lib/os-release; }

read_meminfo() { cat /proc/meminfo; }

read_loadavg() { cat /proc/loadavg; }

# The paths in $interpreters that are not programs here.
read_missing_interpreters() (
  IFS=' '
  for python in $interpreters; do
    [ -f "$python" ] && [ -x "$python" ] || echo "$python"
  done
)

# CPUs that this process may run on, from a list such as 0-3,8.
allowed_cpus() {
  while read -r key list; do
    [ "$key" = Cpus_allowed_list: ] && break
  done </proc/self/status
  count=0 IFS=,
  for range in $list; do
    count=$((count + ${range#*-} - ${range%-*} + 1))
  done
  unset IFS
  [ "$count" -gt 0 ] && echo "$count"
}

# at_most QUOTA PERIOD: lowers $usable to the CPUs of one cgroup's quota, rounded up.
at_most() {
  case $1$2 in '' | *[!0-9]*) return ;; esac
  [ "$1" -gt 0 ] && [ "$2" -gt 0 ] || return
  paid=$((($1 + $2 - 1) / $2))
  [ "$paid" -ge "$usable" ] || usable=$paid
}

own_cgroups=/proc/self/cgroup
cgroups=/sys/fs/cgroup
read_nproc() {
  usable=$(allowed_cpus || nproc || getconf _NPROCESSORS_ONLN || grep -c ^processor /proc/cpuinfo)
  [ "$usable" -gt 0 ] || return 1
  while IFS=: read -r _ controllers group; do
    case ,$controllers, in ,, | *,cpu,*) ;; *) continue ;; esac
    while :; do # the quota of every cgroup above counts too
      read -r quota period <"/sys/fs/cgroup${group%/}/cpu.max" && at_most "$quota" "$period"
      for v1 in cpu cpu,cpuacct; do
        read -r quota <"/sys/fs/cgroup/$v1${group%/}/cpu.cfs_quota_us" &&
          read -r period <"/sys/fs/cgroup/$v1${group%/}/cpu.cfs_period_us" &&
          at_most "$quota" "$period"
      done
      case $group in /?*) group=${group%/*} ;; *) break ;; esac
    done
  done </proc/self/cgroup
  echo "$usable"
}

# The least bytes of memory that the cgroup of this login, and those above it, may use.
read_memory_limit() {
  least=
  while IFS=: read -r _ controllers group; do
    case ,$controllers, in ,, | *,memory,*) ;; *) continue ;; esac
    while :; do
      for file in "${group%/}/memory.max" "/memory${group%/}/memory.limit_in_bytes"; do
        read -r limit <"$cgroups$file" || continue
        case $limit in '' | *[!0-9]* | ????????????????*) continue ;; esac # max, or as good as
        [ -n "$least" ] && [ "$least" -le "$limit" ] || least=$limit
      done
      case $group in /?*) group=${group%/*} ;; *) break ;; esac
    done
  done <"$own_cgroups"
  [ -n "$least" ] && echo "$least"
}

# Bytes of an SVE register, as programs get them; /proc/cpuinfo does not have them.
sve=/proc/sys/abi/sve_default_vector_length
read_sve() { read -r length <"$sve" && echo "$length"; }

# The board, if the firmware has a device tree: a Jetson's GPU is not on a PCI bus.
tree=/proc/device-tree
read_device_tree() {
  for key in model compatible; do
    tr '\0' '\n' <"$tree/$key" | while read -r value; do echo "$key: $value"; done
  done
  for device in /dev/nvhost-gpu /dev/nvgpu /dev/nvidiactl; do
    [ -e "$device" ] && echo "device: $device"
  done
  return 0
}

# --- The C and C++ libraries ---

read_libc() {
  version=$(getconf GNU_LIBC_VERSION)
  case $version in glibc*) echo "$version"; return ;; esac
  for loader in /lib/ld-musl-*.so.1; do
    [ -e "$loader" ] && "$loader" 2>&1 | head -n 2 && return
  done
  version=$(ldd --version 2>&1 | head -n 1)
  case $version in *GLIBC* | *GNU\ libc*) echo "glibc ${version##* }" ;; *) return 1 ;; esac
}

# The highest version of its symbols is in its file's name: libstdc++.so.6.0.30 has GLIBCXX_3.4.30.
read_libstdcxx() {
  for library in /usr/lib/*-linux-gnu/libstdc++.so.6 /usr/lib64/libstdc++.so.6 \
    /usr/lib/libstdc++.so.6 /lib64/libstdc++.so.6 /lib/*-linux-gnu/libstdc++.so.6; do
    [ -r "$library" ] || continue
    file=$(readlink -f "$library")
    case $file in */libstdc++.so.6.0.*) echo "GLIBCXX_3.4.${file##*.}"; return ;; esac
    grep -ao 'GLIBCXX_3\.4\.[0-9]*' "$file" || grep -o 'GLIBCXX_3\.4\.[0-9]*' "$file" # it was copied
    return
  done
  return 1
}

# --- Disks ---

# The nearest directory above (or at) $1 that exists.
existing() {
  path=$1
  while [ -n "$path" ] && [ ! -d "$path" ]; do path=${path%/*}; done
  echo "${path:-/}"
}

read_disk() {
  case $workspace in
    '~/.cache/'*) # where a build as root has its folder: the module build moves it out of root's home
      home=${HOME:-/}/.cache
      [ "$(id -u)" = 0 ] && home=/var/cache
      workspace=$home${workspace#'~/.cache'}
      ;;
    '~'*) workspace=${HOME:-/}${workspace#'~'} ;;
    /*) ;;
    *) workspace=${HOME:-}/$workspace ;;
  esac
  workspace=$(existing "$workspace")
  install=$(existing "$install_path")
  df -PTk "$workspace" "$install" || df -Pk "$workspace" "$install" || return
  is_read_only "$install" && echo read-only
  user=$(id -u)
  [ "$user" = 0 ] && return
  each_unwritable
  have sudo || echo no-sudo
}

# The release names for which only root can write, each with the user who cannot: as `writable` in
# the module release.
each_unwritable() {
  for root in "$install_path" "$install_path"/*; do
    name=default
    [ "$root" = "$install_path" ] || { [ -d "$root/releases" ] && name=${root##*/}; } || continue
    for folder in "$(existing "$root")" "$root/releases" "$root/wheels"; do
      [ ! -e "$folder" ] || { [ -w "$folder" ] && [ -x "$folder" ]; } && continue
      echo "needs-root $user $name"
      break
    done
  done
}

# Whether the file system of $1 is mounted read-only: root could not write there either.
mounts=/proc/self/mounts
is_read_only() {
  mount=$(df -P "$1" | tail -n 1) mount=${mount##* } options=
  while read -r _ point _ now _; do
    [ "$point" = "$mount" ] && options=$now
  done <"$mounts"
  case ,$options, in *,ro,*) return 0 ;; *) return 1 ;; esac
}

read_release() {
  found=1
  for manifest in "$install_path"/current/manifest.json "$install_path"/*/current/manifest.json; do
    [ -r "$manifest" ] && head -c 262144 "$manifest" && echo && found=0
  done
  return "$found"
}

# Whether the node accepts only signed releases; module_utils/release_signature.py reads the file.
signers=/etc/fleetbuild/allowed_signers
read_allowed_signers() { echo required; }

# For each release name, the release that a rollback would switch to: before the last line of the
# current one, the last one in the history that is verified and still there. As Root.history reads it.
read_previous() {
  for root in "$install_path" "$install_path"/*; do
    [ -r "$root/history" ] || continue
    name=${root##*/} now=$(readlink "$root/current") last= before=
    [ "$root" = "$install_path" ] && name=default
    now=${now##*/} && now=${now#.broken-}
    while read -r id; do
      if [ "$id" = "$now" ]; then
        before=${last:--}
      elif [ -e "$root/releases/$id/bin/python" ] &&
        grep -q '"verified": true' "$root/releases/$id/manifest.json"; then
        last=$id
      fi
    done <"$root/history"
    last=${before:-$last}
    [ -n "${last#-}" ] && echo "$name $last"
  done
  true
}

# On a node with allowed signers: "signature by PRINCIPAL", "signature none", or "signature refused"
# if no allowed signer has signed this release, as after a signer was removed.
release_signature() {
  [ -r "$signers" ] || return 0
  id=$(pwd -P) statement=manifest.json.signed
  id=${id##*/}
  if [ ! -e "$statement" ] || [ ! -e "$statement.sig" ]; then echo 'signature none' && return; fi
  command -v ssh-keygen >/dev/null 2>&1 || return 0
  fleet=$(sed -n 's/.*,"fleet":"\([a-z0-9-]*\)",.*/.\1/p' "$statement")
  ssh-keygen -Y find-principals -f "$signers" -s "$statement.sig" 2>/dev/null | head -n 8 | {
    while read -r who; do
      grep -qF "\"id\":\"${id#.broken-}\"" "$statement" &&
        ssh-keygen -Y verify -f "$signers" -s "$statement.sig" -I "$who" \
          -n "release$fleet@fleetbuild.dev" <"$statement" >/dev/null 2>&1 &&
        echo "signature by $who" | head -c 200 && echo && exit
    done
    echo 'signature refused'
  }
}

# What each current release has that its record (manifest.files) has not, and the other way round,
# by size and time; module_utils/release_files.py writes the record in the same form. 12,000 files
# take a tenth of a second.
read_release_files() {
  found=1
  for current in "$install_path"/current "$install_path"/*/current; do
    [ -L "$current" ] || continue
    found=0 name=default
    [ "$current" = "$install_path"/current ] || name=${current%/current} name=${name##*/}
    echo "release $name"
    case $(readlink "$current") in releases/*) ;; *) echo elsewhere ;; esac
    [ -d "$current/" ] || [ ! -x "${current%current}releases" ] || echo gone
    (cd "$current/" && release_signature && release_files) || echo unknown
  done
  return "$found"
}

release_files() {
  [ -x bin/python ] || echo python
  [ -r manifest.files ] || return 0
  sum=$(sha256sum <manifest.files) || return
  echo "record ${sum%% *}"
  {
    find . '(' -type f -o -type l ')' ! -path '*/__pycache__/*' ! -path "*$newline*" \
      ! -path './manifest.json*' ! -path './manifest.files*' ! -path './bin/fleetbuild-sanity*' \
      -exec stat -c '%s %Y %n' {} + || echo '!'
    sed -e '/\/__pycache__\//d' -e 's/^.\{65\}//' manifest.files
  } | sort | uniq -u | while read -r size time path; do
    how=differs
    [ -z "$path" ] || [ -e "$path" ] || [ -L "$path" ] || how=deleted
    echo "$how $size${time:+ $time $path}"
  done | head -c 4000
}

# --- Python ---

# One line: path, version, SOABI, then "venv" or, without the pip of ensurepip, "venv-alone", and
# "headers" where present, or "-" where neither is (a line that ends after SOABI does not say). Then a
# line "LINK -> PATH" for each argument that leads to it. For any Python 3, without site (a quarter of
# the start-up) and without leaving .pyc files behind.
about='
import os, sys
tag = "%d.%d" % sys.version_info[:2]

def made_from(program):
    """Return the interpreter that an environment of copied programs was made from."""
    folder = os.path.dirname(os.path.dirname(program))
    try:
        with open(os.path.join(folder, "pyvenv.cfg")) as file:
            pairs = [line.partition("=") for line in file.read(65536).splitlines()]
    except (OSError, ValueError):
        return program
    homes = [value.strip() for key, _, value in pairs if key.strip() == "home"]
    base = os.path.join((homes or [""])[0], "python" + tag)
    return base if os.path.isabs(base) and os.path.isfile(base) else program

# Of a virtual environment, the interpreter that it links to: an environment comes and goes. From
# 3.11 on, Python names it for one that has a copy, too; before, its folder is in pyvenv.cfg.
base = getattr(sys, "_base_executable", None) or sys.executable
path = os.path.realpath(base if os.path.exists(base) else sys.executable)
known = (path, os.path.realpath(sys.executable))
if path == known[1]:
    path = os.path.realpath(made_from(path))
try:
    import _imp
    soabi = _imp.extension_suffixes()[0][1:-3]
except (ImportError, IndexError):
    soabi = ""
if "-" not in soabi:
    import sysconfig
    soabi = sysconfig.get_config_var("SOABI") or "unknown"
words = [path, "%d.%d.%d" % sys.version_info[:3], soabi]
library = os.path.dirname(os.__file__)
try:
    import zlib
    os.stat(os.path.join(library, "venv", "__init__.py"))
    whole = os.path.exists(os.path.join(library, "ensurepip", "__init__.py"))
    words.append("venv" if whole else "venv-alone")
except (ImportError, OSError):
    pass
name = "python" + tag + getattr(sys, "abiflags", "")
if os.path.exists(os.path.join(sys.base_prefix, "include", name, "Python.h")):
    words.append("headers")
print(" ".join(words if words[3:] else words + ["-"]))
# A configuration may name one of these instead.
links = [link for link in sys.argv[1:] if link != path and os.path.realpath(link) in known]
for link in links[:16]:
    print(link + " -> " + path)
'

# All interpreters start at once; each is printed after the later arguments.
ask_pythons() {
  [ $# -gt 0 ] || return 0
  # shellcheck disable=SC2086 # a line each
  (IFS='
' && set -f && exec "$1" -I -S -B -c "$about" $names) </dev/null | {
    shift
    ask_pythons "$@"
    cat
  }
}

# Puts every interpreter in the directories $@ before those in $pythons, each file once.
pythons_in() {
  for directory; do
    for python in "$directory"/python3 "$directory"/python3.[0-9] "$directory"/python3.[0-9][0-9]; do
      [ -f "$python" ] && [ -x "$python" ] && [ "$number" -lt 16 ] || continue
      case $python in */shims/python3.* | *'
'*) continue ;; esac # pyenv's shims answer for versions that are not there
      [ ${#names} -gt 8000 ] || names="$names
$python"
      IFS='
'
      for known in $pythons; do
        # shellcheck disable=SC3013 # every sh has -ef, and POSIX 2024 names it
        [ "$python" -ef "$known" ] && continue 2
      done
      pythons="$python
$pythons" number=$((number + 1))
    done
  done
}

read_python() {
  pythons='' names='' number=0
  IFS=:
  # shellcheck disable=SC2086 # split at the colons
  set -f && set -- $PATH && set +f
  pythons_in "$@"
  unset IFS
  pythons_in /opt/*/bin /opt/rh/*/root/usr/bin /opt/rh/*/root/bin /opt/python/*/bin \
    "${HOME:-/nonexistent}"/.pyenv/versions/*/bin \
    "${HOME:-/nonexistent}"/.local/share/uv/python/*/bin
  IFS='
'
  # shellcheck disable=SC2086 # a line each
  set -f && set -- $pythons && set +f
  unset IFS
  ask_pythons "$@"
}

# --- GPUs ---

# within COMMAND...: it ends with the section, even where the section's shell cannot be killed.
within() {
  if have timeout; then timeout "$deadline" "$@"; else "$@"; fi
}

nvidia_smi_csv() {
  within nvidia-smi "--query-gpu=index,name,$1driver_version,memory.total,uuid" --format=csv 2>&1
}

# Completes nvidia-smi's CSV, from standard input, with the CUDA driver's own values for each GPU;
# writes the whole CSV if the input is empty. For any Python 3.
cuda='
import ctypes, os, sys, uuid
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
driver = ctypes.CDLL("libcuda.so.1")

def ask(function, *arguments):
    answer = ctypes.c_size_t()
    if getattr(driver, function)(ctypes.byref(answer), *arguments):
        raise OSError(function)
    return answer.value

def identity(device):
    answer = ctypes.create_string_buffer(16)
    if not hasattr(driver, "cuDeviceGetUuid") or driver.cuDeviceGetUuid(answer, device):
        return "[N/A]"
    return "GPU-" + str(uuid.UUID(bytes=answer.raw))

if driver.cuInit(0):
    sys.exit(1)
rows = [[cell.strip() for cell in line.split(",")] for line in sys.stdin if line.strip()]
own, sms = [["index", "name", "memory.total [MiB]", "uuid"]], []
for index in range(ask("cuDeviceGetCount")):
    device = ask("cuDeviceGet", index)
    name = ctypes.create_string_buffer(100)
    driver.cuDeviceGetName(name, 100, device)
    memory = ask("cuDeviceTotalMem_v2", device) >> 20
    sms.append("%d.%d" % tuple(ask("cuDeviceGetAttribute", key, device) for key in (75, 76)))
    text = name.value.decode("ascii", "replace").replace(",", " ")
    own.append([str(index), text, "%d MiB" % memory, identity(device)])
known = {row[3]: sm for row, sm in zip(own[1:], sms) if row[3] != "[N/A]"}
rows = rows or own
head = rows[0]
if "compute_cap" not in head:
    for row in rows:
        row.append("compute_cap" if row is head else "[N/A]")
column, identities = head.index("compute_cap"), head.index("uuid")
for number, row in enumerate(rows[1:]):
    if len(row) == len(head) and "." not in row[column]:
        same = len(sms) == len(rows) - 1
        row[column] = known.get(row[identities]) or (sms[number] if same else "[N/A]")
print("\n".join(", ".join(row) for row in rows))
'

# Asked only where a driver has made its devices: on all other nodes this costs nothing.
ask_cuda() {
  for device in /dev/nvidiactl /dev/nvhost-gpu /dev/nvgpu /dev/dxg; do
    [ -e "$device" ] && have python3 && within python3 -I -S -B -c "$cuda" && return
  done
  return 1
}

read_nvidia_smi() {
  if ! have nvidia-smi; then
    ask_cuda </dev/null
    return
  fi
  if text=$(nvidia_smi_csv compute_cap,); then
    case $text in
      *', [N/A], '[0-9[]*) ;; # it knows the column, and no value for it: a Jetson
      *) echo "$text"; return ;;
    esac
  else
    case $text in
      *compute_cap*) text=$(nvidia_smi_csv '') ;; # an older driver, which does not know that column
      *) echo "${text:-nvidia-smi gave no answer.}"; return ;;
    esac
  fi
  complete=$(echo "$text" | ask_cuda) && text=$complete
  echo "$text"
}

# GPUs that are split into instances. The driver creates that directory if a GPU can be split.
split=/proc/driver/nvidia/capabilities
read_mig() {
  within nvidia-smi --query-gpu=index,name,mig.mode.current --format=csv 2>&1
  within nvidia-smi -L 2>&1
}

# lspci's output, made from /sys: all devices of NVIDIA, and the GPUs of AMD and Intel.
pci_devices() {
  for device in /sys/bus/pci/devices/*; do
    read -r vendor <"$device/vendor" || continue
    read -r class <"$device/class" || continue
    case $vendor$class in
      0x10de*) maker='NVIDIA Corporation' ;;
      0x10020x03* | 0x10020x1200*) maker='Advanced Micro Devices, Inc.' ;;
      0x80860x03*) maker='Intel Corporation' ;;
      *) continue ;;
    esac
    read -r id <"$device/device" || continue
    read -r revision <"$device/revision"
    class=${class#0x}
    class=${class%??}
    case $class in
      0300) kind='VGA compatible controller' ;;
      0302) kind='3D controller' ;;
      1200) kind='Processing accelerators' ;;
      *) kind='Device' ;;
    esac
    echo "${device##*/} $kind [$class]: $maker Device [${vendor#0x}:${id#0x}] (rev ${revision#0x})"
  done
}

read_lspci() {
  text=$(have lspci && lspci -Dnn | grep -iE '\[10de:|\[(03..|1200)\]: .*\[(1002|8086):')
  [ -n "$text" ] || text=$(pci_devices)
  [ -n "$text" ] && echo "$text"
}

# AMD's GPUs with a working driver: PCI domain, location_id and gfx_target_version of each.
topology=/sys/class/kfd/kfd/topology/nodes
read_kfd() {
  for properties in "$topology"/*/properties; do
    domain=0 location=0 version=0
    while read -r key value; do
      case $key in
        domain) domain=$value ;;
        location_id) location=$value ;;
        gfx_target_version) version=$value ;;
      esac
    done <"$properties"
    [ "$version" = 0 ] || echo "$domain $location $version"
  done
}

# --- Tools ---

# tool NAME COMMAND...: NAME and the first number in what COMMAND prints on its first line.
tool() {
  name=$1
  shift
  have "$1" || return
  text=$("$@" 2>&1) || return
  set -f
  # shellcheck disable=SC2086 # split into words
  for word in ${text%%"$newline"*}; do
    case $word in [0-9]*.* | [0-9] | [0-9][0-9]) echo "$name $word"; break ;; esac
  done
  set +f
}

each_nvcc() {
  seen=
  for compiler in $(command -v nvcc) /usr/local/cuda*/bin/nvcc; do
    [ -x "$compiler" ] || continue
    for known in $seen; do
      # shellcheck disable=SC3013
      [ "$compiler" -ef "$known" ] && continue 2
    done
    seen="$seen $compiler"
    text=$("$compiler" --version)
    text=${text##*release }
    echo "nvcc ${text%%,*}"
    each_lacking "$compiler" "${text%%,*}"
  done
}

# The libraries of every CUDA that this toolkit lacks: NVIDIA packages them one by one. A
# toolkit whose headers are elsewhere is not judged.
each_lacking() {
  headers=$(readlink -f "$1")
  headers=${headers%/bin/nvcc}/include
  [ -e "$headers/cuda_runtime.h" ] || return
  for library in cublas:cublas_v2 cufft:cufft curand:curand cusolver:cusolverDn \
    cusparse:cusparse nvrtc:nvrtc; do
    [ -e "$headers/${library#*:}.h" ] || echo "without-${library%:*} $2"
  done
}

# The gccs of a major version, under the names by which a build looks for them; each with its g++.
each_gcc() {
  major=5
  while [ "$major" -le 30 ]; do
    for compiler in "gcc-$major" "gcc$major-gcc" "/opt/rh/gcc-toolset-$major/root/usr/bin/gcc"; do
      have "$compiler" && have "${compiler%gcc*}g++${compiler##*gcc}" &&
        tool "gcc-$major" "$compiler" -dumpfullversion -dumpversion && break
    done
    major=$((major + 1))
  done
}

each_cudnn() {
  for header in /usr/include/cudnn_version.h /usr/include/*-linux-gnu/cudnn_version.h \
    /usr/local/cuda*/include/cudnn_version.h; do
    [ -r "$header" ] || continue
    while read -r directive name value _; do
      case "$directive $name" in
        "#define CUDNN_MAJOR") major=$value ;;
        "#define CUDNN_MINOR") minor=$value ;;
        "#define CUDNN_PATCHLEVEL") echo "cudnn $major.$minor.$value"; break ;;
      esac
    done <"$header"
  done
}

read_toolchain() {
  tool gcc gcc -dumpfullversion -dumpversion
  tool g++ g++ -dumpfullversion -dumpversion
  tool clang clang --version
  each_nvcc
  each_cudnn
  tool cmake cmake --version
  tool ninja ninja --version
  tool ccache ccache --version
  # The cargo of rustup writes its first settings, and a probe writes nothing.
  case $(readlink -f "$(command -v cargo)") in
    */rustup) [ ! -e "${RUSTUP_HOME:-$HOME/.rustup}/settings.toml" ] || tool cargo cargo --version ;;
    *) tool cargo cargo --version ;;
  esac
  each_gcc
  return 0
}

# --- Isolation of builds ---

# setting NAME VALUE: whether the kernel has this setting, with this value.
settings=/proc/sys
setting() {
  file=$settings/$(echo "$1" | tr . /)
  [ -r "$file" ] && read -r value <"$file" && [ "$value" = "$2" ] && echo "none $1"
}

# What a build does: namespaces of its own, and a mount that only they see.
trial='mount -t tmpfs none /tmp && mkdir /tmp/usr && mount --rbind /usr /tmp/usr'
read_isolation() {
  while read -r key capabilities _; do
    [ "$key" = CapEff: ] && break
  done </proc/self/status
  # CAP_SYS_ADMIN is number 21.
  [ $((0x${capabilities:-0} >> 21 & 1)) = 1 ] && echo namespaces && return
  have unshare || return
  within unshare -U -r -m -n -i -u -p -f sh -c "$trial" >/dev/null && echo namespaces && return
  setting user.max_user_namespaces 0 && return
  setting kernel.unprivileged_userns_clone 0 && return
  setting kernel.apparmor_restrict_unprivileged_userns 1 && return
  echo none
}

# --- All sections ---

# framed NAME: the output of that section's function, between its marks.
framed() {
  echo "$nonce begin $1"
  answer "$1"
}

answer() {
  case $1 in
    *-*) "read_${1%-*}_${1#*-}" ;;
    *) "read_$1" ;;
  esac </dev/null
  printf '\n%s end %s %s\n' "$nonce" "$1" $?
}

# timely NAME: the same, over when the function is or, so that nobody waits for a process that
# cannot even be killed, when the nap is.
timely() {
  echo "$nonce begin $1"
  sleep "$deadline" &
  nap=$!
  { answer "$1"; kill $nap; } &
  wait $nap || return 0
  kill -9 $!
  printf 'fleetbuild: no answer within %s s\n\n%s end %s 124\n' "$deadline" "$nonce" "$1"
}

# Copies a section, up to its end and no further.
relay() {
  while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in "$nonce end "*) break ;; esac
  done
}

# together NAME...: sections that may take their time, all at once, while the quick ones are read.
together() {
  if [ $# -eq 0 ]; then
    for quick in uname cpuinfo os-release libc meminfo memory-limit nproc loadavg; do framed $quick; done
    [ -n "$interpreters" ] && framed missing-interpreters
    [ -e "$signers" ] && framed allowed-signers
    [ -r "$sve" ] && framed sve
    [ -r "$tree/compatible" ] && framed device-tree
    [ -d "$topology" ] && framed kfd
    return
  fi
  timely "$1" | {
    shift
    together "$@"
    relay
  }
}

mig=
for device in "$split"/gpu*/mig; do [ -d "$device" ] && mig=mig; done
previous=
for history in "$install_path"/history "$install_path"/*/history; do
  [ -r "$history" ] && previous=previous
done
together release release-files isolation $previous disk libstdcxx lspci nvidia-smi $mig toolchain python </dev/null
exit 0
