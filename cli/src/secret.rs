//! Reads a password from a terminal without echo, or from standard input.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::failure::Failure;

/// Reads a new password: twice from a terminal, otherwise the first line of standard input.
pub(crate) fn new_password(user: &str) -> Result<String, Failure> {
    if !io::stdin().is_terminal() {
        let password = line()?;
        if password.is_empty() {
            return Err(Failure::bad_input(
                "standard input: no password; pass one line, or run the command on a terminal",
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
        return Err(Failure::bad_input("the password is empty; nothing was changed"));
    }
    if password != again {
        return Err(Failure::bad_input("the passwords differ; nothing was changed"));
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

/// Disables the echo of a terminal until this is dropped. Echo must be off before the prompt, so
/// `rpassword` is not used: it disables echo after the prompt.
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
