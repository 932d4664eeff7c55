//! Priorities of threads.
//!
//! Honest clients and attackers have machines of their own, and would not take the store's processors from it, nor wait for
//! one that it has: a kernel lets who has one go on for milliseconds. So the honest client runs before everybody else here, and
//! attackers when nobody else does.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Once;

use crate::say;

/// The calling thread runs as soon as it can.
pub(crate) fn first() {
    ask(&["--fifo", "--pid", "10"]);
}

/// The calling thread runs when nobody else does.
pub(crate) fn last() {
    ask(&["--idle", "--pid", "0"]);
}

fn ask(how: &[&str]) {
    static SAID: Once = Once::new();
    let thread = fs::read_link("/proc/thread-self").ok();
    let thread = thread.as_deref().and_then(|path| path.file_name());
    let mut chrt = Command::new("chrt");
    chrt.args(how).args(thread).stdout(Stdio::null()).stderr(Stdio::null());
    if !chrt.status().is_ok_and(|status| status.success()) {
        SAID.call_once(|| {
            say("latencies here are the kernel's too: no real-time scheduling by `chrt`, or no right to it");
        });
    }
}
