//! Passwords from a terminal, without showing them, or from whatever standard input is.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::failure::Failure;

/// Asks for a new password, on a terminal twice; elsewhere it is the first line.
pub(crate) fn new_password(user: &str) -> Result<String, Failure> {
    if !io::stdin().is_terminal() {
        let password = line()?;
        if password.is_empty() {
            return Err(Failure::bad_input(
                "no password on standard input; on a terminal this command asks for it",
            ));
        }
        return Ok(password);
    }
    let hidden = Hidden::begin().map_err(Failure::system)?;
    ask(&format!("Password for {user}: "))?;
    let password = line()?;
    ask("\nAgain: ")?;
    let again = line()?;
    ask("\n")?;
    drop(hidden);
    if password.is_empty() {
        return Err(Failure::bad_input("an empty password; nothing has changed"));
    }
    if password != again {
        return Err(Failure::bad_input("these are two different passwords; nothing has changed"));
    }
    Ok(password)
}

fn line() -> Result<String, Failure> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(Failure::system)?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}

fn ask(text: &str) -> Result<(), Failure> {
    let mut terminal = io::stderr().lock();
    terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()).map_err(Failure::system)
}

/// A terminal that does not show what is typed, for as long as this lives.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin().as_fd())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin().as_fd(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.0);
    }
}
