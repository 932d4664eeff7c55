//! Who may connect with which password: the lines of a password file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use argon2::Argon2;
use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher as _, PasswordVerifier as _, SaltString};

/// Users and the Argon2 hashes of their passwords, as lines `NAME:HASH`.
///
/// A hash is in the usual form `$argon2id$v=19$...`. Empty lines, and lines that begin with `#`, say nothing; they are
/// not kept.
///
/// ```
/// use statestore_embedded::Users;
///
/// # fn main() -> Result<(), statestore_embedded::UsersError> {
/// let mut users = Users::default();
/// users.set("alice", "secret")?;
/// let file = users.to_string();
/// assert!(file.starts_with("alice:$argon2id$"));
/// assert_eq!(file.parse::<Users>()?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users {
    hashes: BTreeMap<String, String>,
}

/// What is wrong with a user or a password file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsersError {
    /// A user name is empty, or has a colon or a control character in it, or begins with `#`.
    #[error(
        "{0:?} cannot be a user name: it has to be one line without a colon, and not begin with #"
    )]
    Name(String),
    /// A line of the file is not `NAME:HASH`.
    #[error(
        "line {0} is not NAME:HASH with an Argon2 hash; make such lines with `statestore passwd`"
    )]
    Line(usize),
    /// A user has two lines.
    #[error("line {0} names a user that an earlier line has named")]
    Twice(usize),
    /// The password could not be hashed, as when the system has no random numbers.
    #[error("the password could not be hashed")]
    Hash,
}

impl Users {
    /// Adds a user or changes the password of one. This takes some 20 ms, and 19 MB while it lasts.
    ///
    /// # Errors
    /// [`UsersError::Name`] or [`UsersError::Hash`]; the users are as they were.
    pub fn set(&mut self, name: &str, password: &str) -> Result<(), UsersError> {
        if !is_name(name) {
            return Err(UsersError::Name(name.to_owned()));
        }
        let salt = SaltString::generate(&mut OsRng);
        let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
        let hash = hash.map_err(|_| UsersError::Hash)?;
        self.hashes.insert(name.to_owned(), hash.to_string());
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is none, so that nobody can connect.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether this is the password of that user; as slow as [`set`](Self::set), for users that are not known too.
    pub(crate) fn verify(&self, name: &str, password: &[u8]) -> bool {
        // Somebody's hash, so that the time it takes does not tell which names there are.
        let (is_known, hash) = match self.hashes.get(name) {
            Some(hash) => (true, Some(hash)),
            None => (false, self.hashes.values().next()),
        };
        let Some(Ok(hash)) = hash.map(|hash| PasswordHash::new(hash)) else { return false };
        Argon2::default().verify_password(password, &hash).is_ok() && is_known
    }
}

/// Users that can be replaced while a broker asks for them. Clones are the same.
///
/// ```
/// use statestore_embedded::{Options, SharedUsers, Users};
///
/// # fn main() -> Result<(), statestore_embedded::UsersError> {
/// let users = SharedUsers::from(Users::default());
/// let options = Options::default().users(users.clone());
/// let mut others = Users::default();
/// others.set("alice", "secret")?;
/// users.replace(others);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SharedUsers(Arc<RwLock<Arc<Users>>>);

impl SharedUsers {
    /// From now on these connect and no others. Who is connected stays.
    pub fn replace(&self, users: Users) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(users);
    }

    pub(crate) fn current(&self) -> Arc<Users> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl From<Users> for SharedUsers {
    fn from(users: Users) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(users))))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('#') && name.trim() == name && {
        !name.contains(|c: char| c == ':' || c.is_control())
    }
}

impl std::str::FromStr for Users {
    type Err = UsersError;

    fn from_str(file: &str) -> Result<Self, UsersError> {
        let mut hashes = BTreeMap::new();
        for (number, line) in (1..).zip(file.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once(':') {
                Some((name, hash)) if is_name(name) && hash.starts_with("$argon2") => {
                    if hashes.insert(name.to_owned(), hash.to_owned()).is_some() {
                        return Err(UsersError::Twice(number));
                    }
                }
                _ => return Err(UsersError::Line(number)),
            }
        }
        Ok(Self { hashes })
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hashes.iter().try_for_each(|(name, hash)| writeln!(f, "{name}:{hash}"))
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.hashes.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_is_written() {
        let mut users = Users::default();
        users.set("alice", "one").unwrap();
        users.set("bob", "").unwrap();
        users.set("alice", "two").unwrap();
        let read: Users = format!("# people\n\n{users}").parse().unwrap();
        assert_eq!((&read, read.len()), (&users, 2));
        assert!(read.verify("alice", b"two") && read.verify("bob", b""));
        assert!(!read.verify("alice", b"one") && !read.verify("carol", b"two"));
        assert!(!read.verify("alice", b"\xff"));
        assert!(!Users::default().verify("alice", b"two"));
        assert!(!format!("{read:?}").contains("argon2"), "hashes stay out of logs");
    }

    #[test]
    fn users_that_were_replaced_are_unknown() {
        let known = |name| {
            let mut users = Users::default();
            users.set(name, "secret").unwrap();
            users
        };
        let shared = SharedUsers::from(known("alice"));
        let broker = shared.clone();
        shared.replace(known("bob"));
        let current = broker.current();
        assert!(current.verify("bob", b"secret") && !current.verify("alice", b"secret"));
    }

    #[test]
    fn what_is_no_password_file_is_refused_with_its_line() {
        for (file, error) in [
            ("alice:$argon2id$x\nalice:$argon2id$y", UsersError::Twice(2)),
            ("alice", UsersError::Line(1)),
            ("\n:$argon2id$x", UsersError::Line(2)),
            ("alice:secret", UsersError::Line(1)),
            ("alice:$7$101$mosquitto", UsersError::Line(1)),
        ] {
            assert_eq!(file.parse::<Users>(), Err(error), "{file}");
        }
        for name in ["", "a:b", "a\nb", "#a", " a"] {
            assert_eq!(Users::default().set(name, "x"), Err(UsersError::Name(name.into())));
        }
    }
}
