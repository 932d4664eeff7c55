# shellcheck shell=bash
# Functions that the steps share. Each step sources this file first, from the root of the
# repository.
set -euo pipefail

# A build that runs once needs no files for incremental builds, which take gigabytes.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# Only the build of jemalloc reads this variable, and adds it to its own flags. Without -g0, debug
# information takes a third of its compile time.
export EXTRA_CFLAGS=${EXTRA_CFLAGS:--g0}

# Absolute, so that packages outside of the workspace share it.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
[[ $CARGO_TARGET_DIR = /* ]] || CARGO_TARGET_DIR=$PWD/$CARGO_TARGET_DIR
target=$CARGO_TARGET_DIR
# Tools that the steps build. The tools of the machine come first.
export PATH=$PATH:$target/tools/bin

have() { command -v "$1" >/dev/null 2>&1; }

# run COMMAND...: prints the command, then runs it.
run() {
    printf '   %s\n' "${*//"$PWD/"/}"
    "$@"
}

# skip WHAT REASON: reports a check that cannot run here. `./check` repeats it at its end.
skip() {
    printf '   skipped: %s: %s\n' "$1" "$2"
    [ -z "${CHECK_SKIPPED:-}" ] || printf '%s: %s\n' "$1" "$2" >>"$CHECK_SKIPPED"
}

# Returns whether this script may install system packages: as root, with apt, unless CHECK_INSTALL
# is 0.
may_install() {
    [ "${CHECK_INSTALL:-1}" != 0 ] && [ "$(id -u)" = 0 ] && have apt-get
}

# install_system_packages PACKAGE...: installs system packages with apt, if this script may.
# Returns whether they are installed.
install_system_packages() {
    may_install || return 1
    printf '   installing system packages: %s\n' "$*"
    {
        apt-get update -qq &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >"$target/apt.log" 2>&1 && return
    printf '   apt-get failed; the last lines of %s:\n' "$target/apt.log"
    tail -n 3 "$target/apt.log"
    return 1
}

# try_rustup ARGUMENTS...: runs rustup without its output. Returns whether rustup exists and
# succeeded. A background step may call it at the same time, and two changes of one toolchain
# disturb each other.
try_rustup() {
    have rustup || return
    if have flock; then
        flock "$target/rustup.lock" rustup "$@"
    else
        rustup "$@"
    fi >/dev/null 2>&1
}

# install_toolchain VERSION: installs a Rust toolchain. Returns whether it is installed.
install_toolchain() {
    try_rustup run "$1" rustc --version ||
        try_rustup toolchain install "$1" --profile minimal --no-self-update
}

# install_tool COMMAND PACKAGE [OPTION...]: installs a tool into target/tools if the machine lacks it,
# from its wheel, which is a finished program, or else with these options of `cargo install`.
# Returns whether the tool exists.
install_tool() {
    have "$1" || install_wheel "$1" || build_tool "${@:2}"
}

# install_wheel COMMAND: installs a tool from the Python package index. The file .ci/wheels/COMMAND
# contains the version of its wheel, and hashes of the permitted files. Returns whether the wheel is
# installed. This needs that file, a wheel for this machine, python3 with venv, and the network.
install_wheel() {
    local environment=$target/tools/python/$1
    [ -f ".ci/wheels/$1" ] || return
    {
        python3 -m venv --clear "$environment" &&
            "$environment/bin/pip" install --disable-pip-version-check --only-binary :all: \
                --require-hashes --requirement ".ci/wheels/$1"
    } >"$target/wheel.log" 2>&1 || return
    printf '   installed the wheel of %s into %s\n' "$1" "$environment"
    mkdir -p "$target/tools/bin"
    ln -sf "$environment/bin/$1" "$target/tools/bin/$1"
}

# build_tool PACKAGE [OPTION...]: builds a tool into target/tools with `cargo install`.
build_tool() {
    printf '   building %s into %s\n' "$1" "$target/tools"
    # Without optimization and debug information, since the build takes far longer than the run.
    # Without CARGO_TARGET_DIR, cargo uses a temporary target folder, so the build leaves no files
    # there.
    env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=false \
        cargo install --quiet --debug --locked --root "$target/tools" "$@"
}

have_mosquitto() { have mosquitto || [ -x /usr/sbin/mosquitto ]; }

# Prints the missing system packages that statestore-paho and the deployed SDK need to build.
missing_for_openssl() {
    local missing=()
    have cmake || missing+=(cmake)
    have make || missing+=(make)
    have pkg-config || missing+=(pkg-config)
    pkg-config --exists openssl 2>/dev/null || missing+=(libssl-dev)
    printf '%s' "${missing[*]}"
}
can_build_openssl() { [ -z "$(missing_for_openssl)" ]; }

# Returns whether the compiler and the definitions exist that statestore-etcd needs to build.
have_protobuf() {
    have protoc &&
        { [ -e /usr/include/google/protobuf/empty.proto ] ||
            [ -e /usr/local/include/google/protobuf/empty.proto ]; }
}

# Installs the system packages that OpenSSL's crate needs to build, if this script may.
prepare_openssl() {
    # shellcheck disable=SC2046 # one word for each package
    can_build_openssl || install_system_packages $(missing_for_openssl) || true
}

# Features of the default members that tests and examples require. Cargo skips these without their
# features, and refuses features of packages that are not selected.
features=statestore-client/encrypted-keys,statestore-client/json,statestore-client/websocket
features+=,statestore-server/schema,statestore-server/websocket,statestore-server/service-accounts
features+=,statestore-rumqttc/encrypted-keys,statestore-verify/tls,statestore/top

# Sets `workspace`: the arguments of cargo that select packages and features.
# - With CHECK_MEMBERS=default, they select the default members.
# - Otherwise, also with CHECK_MEMBERS=all, they select all packages and features. The function
#   installs the system packages that these need. If that fails, it skips the packages that cannot
#   be built.
select_workspace() {
    if [ "${CHECK_MEMBERS:-}" = default ]; then
        workspace=(--features "$features")
        return
    fi
    prepare_openssl
    have_protobuf || install_system_packages protobuf-compiler libprotobuf-dev || true
    workspace=(--workspace --all-features)
    can_build_openssl && have_protobuf && return
    skip "the feature jemalloc" "only a build with all features contains it"
    # --all-features would select features that need the missing packages.
    workspace=(--workspace --features "$features,statestore-benches/machines")
    if can_build_openssl; then
        workspace+=(--features statestore-paho/tls)
    else
        workspace+=(--exclude statestore-paho)
        skip "statestore-paho" "it needs $(missing_for_openssl)"
    fi
    if have_protobuf; then
        workspace+=(--features "statestore-etcd/tls,statestore/etcd")
    else
        workspace+=(--exclude statestore-etcd)
        skip "statestore-etcd and serve --etcd" "they need protobuf-compiler and libprotobuf-dev"
    fi
}

# Installs the programs that tests start, and reports the missing ones. A test passes without
# testing anything if its program is missing.
test_programs() {
    local missing=()
    have_mosquitto || missing+=(mosquitto)
    have etcd || missing+=(etcd-server)
    have strace || missing+=(strace)
    have tshark || missing+=(tshark)
    have openssl || missing+=(openssl)
    [ ${#missing[@]} = 0 ] && return
    # One by one, since apt-get installs nothing if a distribution lacks one of them.
    for package in "${missing[@]}"; do
        install_system_packages "$package" || true
    done
    have_mosquitto || skip "tests with mosquitto" "mosquitto is not installed"
    have etcd || skip "tests with etcd" "etcd-server is not installed"
    have strace || skip "tests of power cuts and failing disks" "strace is not installed"
    have tshark || skip "tests of the Wireshark dissector" "tshark is not installed"
    have openssl || skip "tests of TLS" "openssl is not installed"
    have python3 || skip "a test of JUnit reports" "python3 is not installed"
}

# Returns whether cargo-nextest exists. A build of it would take longer than it saves.
have_nextest() { have cargo-nextest || install_wheel cargo-nextest; }

# run_tests OPTION... [-- NAME...]: runs tests of the selected packages, as .config/nextest.toml
# specifies. These are options of both cargo-nextest and `cargo test`.
run_tests() {
    if have_nextest; then
        run cargo nextest run --cargo-quiet "${workspace[@]}" --locked "$@"
    else
        echo '   cargo-nextest could not be installed: the test binaries run one after another'
        run cargo test --quiet "${workspace[@]}" --locked --no-fail-fast "$@"
    fi
}

# Builds the commands with the features of the tests, so that nothing is compiled twice. Exports the
# paths of the commands for the programs that start them.
build_commands() {
    run cargo build --quiet "${workspace[@]}" --locked --bins --tests
    export STATESTORE_BIN=$target/debug/statestore
    export STATESTORE_CHAOS_BIN=$target/debug/statestore-chaos
}

# Builds the command and exports its path. If all steps run, builds it with the features of the
# tests, because the step `tests` has compiled these. Otherwise builds it alone.
build_command() {
    [ -z "${STATESTORE_BIN:-}" ] || return 0
    if [ "${CHECK_MEMBERS:-}" = all ]; then
        # A second call would report the same skipped checks again.
        [ -n "${workspace+set}" ] || select_workspace
        build_commands
    else
        run cargo build --quiet --locked -p statestore
        export STATESTORE_BIN=$target/debug/statestore
    fi
}

mkdir -p "$target"
have cc || install_system_packages gcc libc6-dev || true
