//! A command on a terminal.

use std::fs::File;
use std::io::Read as _;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use statestore_testkit::process::HANGS;

pub(crate) const ROWS: u16 = 24;
pub(crate) const COLUMNS: u16 = 100;

/// A command on its own terminal.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    #[cfg_attr(not(feature = "top"), expect(dead_code, reason = "keeps the terminal open"))]
    pub(crate) keys: File,
    pub(crate) written: Receiver<Vec<u8>>,
}

impl Terminal {
    pub(crate) fn start(command: &Command) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("a terminal");
        unlockpt(&terminal).expect("a terminal");
        let name = ptsname(&terminal, Vec::new()).expect("a name").into_string().expect("text");
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a size");
        let child_end = File::options().read(true).write(true).open(&name).expect("a terminal");
        let keys = File::from(terminal);
        // The terminal is its controlling terminal, as from a shell.
        let mut wrapped = Command::new("setsid");
        wrapped.arg("--ctty").arg(command.get_program()).args(command.get_args());
        wrapped.stdin(child_end.try_clone().expect("a copy"));
        wrapped.stdout(child_end.try_clone().expect("a copy")).stderr(child_end);
        let child = wrapped.spawn().expect("setsid");
        let (sender, written) = channel();
        let mut shown = keys.try_clone().expect("a copy");
        std::thread::spawn(move || {
            let mut space = [0; 4_096];
            while let Ok(count @ 1..) = shown.read(&mut space) {
                if sender.send(space[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, written }
    }

    /// Waits for the end of a command without a screen: its exit code, and all bytes it wrote.
    pub(crate) fn output(mut self) -> (Option<i32>, String) {
        let mut bytes = Vec::new();
        while let Ok(more) = self.written.recv_timeout(HANGS) {
            bytes.extend(more);
        }
        let code = self.child.wait().expect("it ends").code();
        (code, String::from_utf8(bytes).expect("text"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
