//! Names the compiler and the target to the program `instructions`.

use std::env;
use std::error::Error;
use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "cargo configures a build script by variables")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").ok_or("cargo sets RUSTC")?;
    let output = Command::new(rustc).arg("--version").output()?;
    let text = String::from_utf8(output.stdout)?;
    let version = text.trim().strip_prefix("rustc ").ok_or("an unknown compiler")?;
    println!("cargo::rustc-env=BENCHES_RUSTC={version}");
    println!("cargo::rustc-env=BENCHES_TARGET={}", env::var("TARGET")?);
    Ok(())
}
