//! The command under test.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// Returns the path of `statestore`: from `STATESTORE_BIN`, or built by cargo with these options, in
/// the profile of this program.
pub(crate) fn path(options: &[&str]) -> Result<PathBuf, String> {
    if let Some(path) = variable("STATESTORE_BIN") {
        return Ok(path.into());
    }
    let (folder, profile) =
        if cfg!(debug_assertions) { ("debug", "dev") } else { ("release", "release") };
    let mut cargo = Command::new(variable("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "statestore", "--bin", "statestore"]);
    cargo.args(options).args(["--profile", profile]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let built = cargo.status().map_err(|error| format!("cargo: {error}"))?;
    let here = env::current_exe().map_err(|error| error.to_string())?;
    let target = here.ancestors().nth(2).filter(|_| built.success());
    let target = target.ok_or("the command could not be built; STATESTORE_BIN can name one")?;
    Ok(target.join(folder).join("statestore"))
}

#[expect(clippy::disallowed_methods, reason = "the caller selects the command")]
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}
