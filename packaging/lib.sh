# shellcheck shell=bash
# Functions of the scripts in this folder. They run in the root of the repository.

# Prints a value of [workspace.package].
workspace_value() {
    sed -n '/^\[workspace\.package\]$/,/^\[/s/^'"$1"' = "\(.*\)"$/\1/p' Cargo.toml
}
workspace_version() { workspace_value version; }
workspace_repository() { workspace_value repository; }
