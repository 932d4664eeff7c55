//! An application of the SDK under `statestore dev`, configured from the environment alone.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory that is removed with its test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the application for some seconds, as the command of `statestore dev`.
#[expect(clippy::disallowed_methods, reason = "the step that runs this test names the command")]
fn run(test: &str, options: &[&str], seconds: u32) -> Output {
    let program = std::env::var_os("STATESTORE_BIN").expect("STATESTORE_BIN names the command");
    let name = format!("statestore-sdk-{}-{test}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    let mut dev = Command::new(program);
    dev.args(["dev", "--ports", "any", "--dir"]).arg(&directory.0).args(options);
    dev.args(["--", env!("CARGO_BIN_EXE_dev_application"), &seconds.to_string()]);
    dev.env_remove("AIO_MQTT_CLIENT_ID").output().expect("the command starts")
}

fn assert_success(output: &Output) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("values written and read"), "{out}\n{err}");
    // The store logs rejected logins and lost connections of clients whose token has expired.
    assert!(!err.contains("statestore:"), "{err}");
}

#[test]
fn application_logs_in_by_each_method() {
    for login in ["token", "certificate", "none"] {
        assert_success(&run(login, &["--login", login], 0));
    }
}

/// The first token expires after 24 seconds, and the store allows ten more for clocks. It is
/// renewed after twelve seconds. The SDK reads it again when its directory has not changed for ten
/// seconds.
#[test]
fn application_continues_after_its_first_token_has_expired() {
    assert_success(&run("renewal", &["--token-lifetime", "24s"], 36));
}
