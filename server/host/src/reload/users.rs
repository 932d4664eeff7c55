//! The password file.

use std::path::PathBuf;

use super::Reload;
use super::report::{FileKind, Summary};
use crate::files::ReloadFile;
use crate::files::{LoadError, LoadErrorKind};
use crate::login::users::{SharedUsers, Users};

/// Maximum length of a password file in bytes: about 150,000 users.
const USERS_FILE_MAX: u64 = 16 << 20;

/// A password file and its users. A reload rejects a file without users, because it is more likely
/// half written than meant.
#[derive(Debug)]
pub struct UsersFile {
    file: ReloadFile,
    users: SharedUsers,
}

impl UsersFile {
    /// Reads a password file of at most 16 MiB. It may be empty; then no client can log in until a
    /// reload. Blocks.
    ///
    /// # Errors
    /// [`LoadError`] if the file cannot be read or is invalid.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, LoadError> {
        let file = ReloadFile::new(path, USERS_FILE_MAX);
        let users = parse(&file)?.into();
        Ok(Self { file, users })
    }

    /// Returns the users, for [`Options::users`](crate::Options::users).
    #[must_use]
    pub const fn users(&self) -> &SharedUsers {
        &self.users
    }
}

fn parse(file: &ReloadFile) -> Result<Users, LoadError> {
    let text = file.read_text().map_err(|error| LoadError::new(file, error))?;
    text.parse::<Users>().map_err(|error| LoadError::new(file, error))
}

impl Reload for UsersFile {
    fn kind(&self) -> FileKind {
        FileKind::Users
    }

    fn files(&self) -> Vec<&ReloadFile> {
        vec![&self.file]
    }

    fn reload(&self) -> Result<Summary, LoadError> {
        let users = parse(&self.file)?;
        if users.is_empty() {
            return Err(LoadError::new(&self.file, LoadErrorKind::NoUsers));
        }
        let summary = Summary::Users { users: users.len() };
        self.users.replace(users);
        Ok(summary)
    }
}
