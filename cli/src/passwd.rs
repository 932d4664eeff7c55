//! `passwd`: adds, changes, deletes or lists the users of a password file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{FlockOperation, flock};
use statestore_server::Users;

use crate::args::Passwd;
use crate::escape::printable;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::secret::new_password;

fn users(path: &Path) -> Result<Users, Failure> {
    let failure = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("{}: {error}", path.display()))
    };
    let file = fs::read_to_string(path).map_err(|error| failure(&error))?;
    file.parse().map_err(|error| failure(&error))
}

/// Adds, changes, deletes or lists users.
pub(crate) fn run(args: &Passwd) -> Result<ExitCode, Failure> {
    let path = &args.file;
    let failure = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("{}: {error}", path.display()))
    };
    let Some(user) = args.user.as_deref() else {
        let names = users(path)?;
        let lines: String = names.names().map(|name| format!("{name}\n")).collect();
        output::raw(printable(&lines).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let password = (!args.delete).then(|| new_password(user)).transpose()?;
    // Of two concurrent changes, the second reads what the first has written.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder =
        File::open(folder.unwrap_or_else(|| Path::new("."))).map_err(|error| failure(&error))?;
    flock(&folder, FlockOperation::LockExclusive).map_err(|error| failure(&error))?;
    let old = match fs::symlink_metadata(path) {
        Ok(old) if old.is_file() => Some(old),
        Ok(_) => return Err(failure(&"this is not a regular file: name the file itself")),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failure(&error)),
    };
    let mut users = if old.is_some() { users(path)? } else { Users::default() };
    match password {
        Some(password) => users.set(user, &password).map_err(Failure::bad_input)?,
        None if users.remove(user) => {}
        None => {
            output::terminal_note("absent");
            return Ok(Exit::Negative.into());
        }
    }
    replace(path, &users.to_string(), old.as_ref()).map_err(|error| failure(&error))?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces a file atomically. It keeps owner and mode; a new file is readable by its owner only.
fn replace(path: &Path, text: &str, old: Option<&Metadata>) -> io::Result<()> {
    let mut name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{:08x}", fastrand::u32(..)));
    let new = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let prepared = old.map_or(Ok(()), |old| copy_owner_and_mode(&file, old));
    let written = prepared.and_then(|()| file.write_all(text.as_bytes()));
    let written = written.and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// Copies owner and mode of the old file, so that the same users can read the new one.
fn copy_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid())).map_err(|error| {
            let (user, group) = (old.uid(), old.gid());
            io::Error::other(format!(
                "it belongs to user {user} and group {group}: {error}; become that user"
            ))
        })?;
    }
    file.set_permissions(old.permissions())
}
