//! Priorities of threads.
//!
//! In reality, honest clients and attackers run on their own machines. They do not take processors
//! from the store, and do not wait until the store releases one, which takes milliseconds.
//! Therefore the honest client gets the highest priority here, and attackers the lowest.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Once;

use crate::output::print_line;

/// Gives the calling thread the highest priority.
pub(crate) fn raise() {
    set_priority(&["--fifo", "--pid", "10"]);
}

/// Lets the calling thread run only while the processors are idle.
pub(crate) fn lower() {
    set_priority(&["--idle", "--pid", "0"]);
}

fn set_priority(options: &[&str]) {
    static PRINTED: Once = Once::new();
    let thread = fs::read_link("/proc/thread-self").ok();
    let thread = thread.as_deref().and_then(|path| path.file_name());
    let mut chrt = Command::new("chrt");
    chrt.args(options).args(thread).stdout(Stdio::null()).stderr(Stdio::null());
    if !chrt.status().is_ok_and(|status| status.success()) {
        PRINTED.call_once(|| {
            print_line(
                "no real-time priority by `chrt`: latencies include delays of the scheduler",
            );
        });
    }
}
