//! Users and their password hashes, as in a password file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use argon2::password_hash::PasswordHasher as _;
use argon2::password_hash::phc::{Error as PhcError, Output, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};

use crate::login::client_ids::is_name;

/// Maximum memory of a hash in a password file, in KiB: more than three times that of the hashes
/// made by [`Users::set`].
const MEMORY_KIB_MAX: u32 = 64 << 10;

/// Maximum number of passes of a hash. Hashes made by [`Users::set`] take two. Sixteen passes over
/// 64 MiB take about a second.
const PASSES_MAX: u32 = 16;

/// Users and the Argon2 hashes of their passwords, as lines `NAME:HASH`.
///
/// A hash has the PHC string format `$argon2id$v=19$...`. Empty lines and lines that begin with `#`
/// are ignored, and are not written back.
///
/// ```
/// use statestore_server::Users;
///
/// # fn main() -> Result<(), statestore_server::UsersError> {
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

/// Error in a user or a password file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsersError {
    /// A user name is empty or has surrounding blanks, a control character, or one of `: / + #`.
    #[error("invalid user name: it must be one line without any of : / + #")]
    Name,
    /// A line of the file is not `NAME:HASH`.
    #[error("line {0} is not NAME:HASH with an Argon2 hash; create lines with `statestore passwd`")]
    Line(usize),
    /// A hash needs too much memory for each login.
    #[error("line {line}: this hash takes {asked} KiB of memory; the limit is {MEMORY_KIB_MAX}")]
    Memory {
        /// Line number.
        line: usize,
        /// Memory of the hash in KiB.
        asked: u32,
    },
    /// A hash needs too much time for each login.
    #[error(
        "line {line}: this hash takes {asked} passes over its memory; the limit is {PASSES_MAX}"
    )]
    Passes {
        /// Line number.
        line: usize,
        /// Passes of the hash.
        asked: u32,
    },
    /// A user has two lines.
    #[error("line {0}: this user is already on an earlier line")]
    Twice(usize),
    /// The password could not be hashed, for example without random numbers of the system.
    #[error("the password could not be hashed")]
    Hash,
}

impl Users {
    /// Adds a user, or changes the password of a user. Takes about 20 ms, and 19 MiB of memory
    /// until it returns.
    ///
    /// # Errors
    /// [`UsersError::Name`] or [`UsersError::Hash`]. The users stay unchanged.
    pub fn set(&mut self, name: &str, password: &str) -> Result<(), UsersError> {
        if !is_name(name) {
            return Err(UsersError::Name);
        }
        // With a random salt.
        let hash = Argon2::default().hash_password(password.as_bytes());
        let hash = hash.map_err(|_| UsersError::Hash)?;
        self.hashes.insert(name.to_owned(), hash.to_string());
        Ok(())
    }

    /// Deletes a user. Returns whether the user existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.hashes.remove(name).is_some()
    }

    /// Returns the number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the names of all users, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hashes.keys().map(String::as_str)
    }

    pub(crate) fn hash(&self, name: &str) -> Option<&str> {
        self.hashes.get(name).map(String::as_str)
    }

    /// Returns whether the file is empty, so that clients cannot log in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns whether `password` is the password of this user. As slow as [`set`](Self::set), even
    /// for an unknown user.
    pub(crate) fn verify(&self, name: &str, password: &[u8], workspace: &mut Workspace) -> bool {
        // For an unknown user, verify against another user's hash, so that the duration does not
        // reveal which user names exist.
        let (is_known, hash) = match self.hashes.get(name) {
            Some(hash) => (true, Some(hash)),
            None => (false, self.hashes.values().next()),
        };
        let Some(hash) = hash.and_then(|hash| ParsedHash::new(hash)) else { return false };
        hash.matches(password, workspace).unwrap_or(false) && is_known
    }
}

/// Memory for one hash computation, reused for the next one. Freed memory would stay with the
/// allocator, once per thread.
#[derive(Default)]
pub(crate) struct Workspace(Vec<Block>);

impl Workspace {
    fn blocks(&mut self, count: usize) -> &mut [Block] {
        if self.0.len() < count {
            // Not resized in place: that would need both buffers for a moment, and would copy
            // useless contents.
            self.0 = Vec::new();
            self.0.resize(count, Block::new());
        }
        &mut self.0
    }
}

/// A parsed hash, with all parameters to compute it again.
struct ParsedHash {
    algorithm: Algorithm,
    version: Version,
    salt: Salt,
    output: Output,
    params: Params,
}

impl ParsedHash {
    /// Returns `None` if the text is not a complete Argon2 hash.
    fn new(text: &str) -> Option<Self> {
        let hash = PasswordHash::new(text).ok()?;
        let (salt, output) = hash.salt.zip(hash.hash)?;
        let params = Params::try_from(&hash).ok()?;
        let algorithm = Algorithm::try_from(hash.algorithm.as_str()).ok()?;
        let version = hash.version.map(Version::try_from).transpose().ok()?.unwrap_or_default();
        Some(Self { algorithm, version, salt, output, params })
    }

    fn matches(&self, password: &[u8], workspace: &mut Workspace) -> Option<bool> {
        let argon2 = Argon2::new(self.algorithm, self.version, self.params.clone());
        let blocks = workspace.blocks(self.params.block_count());
        let output = Output::init_with(self.output.len(), |out| {
            let hashed = argon2.hash_password_into_with_memory(password, &self.salt, out, blocks);
            // The kind of the error is not used.
            hashed.map_err(|_| PhcError::ValueTooLong)
        });
        // `Output` compares in constant time.
        Some(output.ok()? == self.output)
    }
}

/// Users that can be replaced while a broker uses them. Clones share the same users.
///
/// ```
/// use statestore_server::{Options, SharedUsers, Users};
///
/// # fn main() -> Result<(), statestore_server::UsersError> {
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
    /// Replaces the users for new connections. [`Broker::recheck`](crate::Broker::recheck) applies
    /// the change to existing sessions. A recent login stays cached if the hash of its user is the
    /// same.
    pub fn replace(&self, users: Users) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(users);
    }

    /// Returns the current users.
    #[must_use]
    pub fn current(&self) -> Arc<Users> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl From<Users> for SharedUsers {
    fn from(users: Users) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(users))))
    }
}

impl std::str::FromStr for Users {
    type Err = UsersError;

    fn from_str(file: &str) -> Result<Self, UsersError> {
        let mut hashes = BTreeMap::new();
        // Some editors write a byte order mark, which is not part of the first name.
        let file = file.strip_prefix('\u{feff}').unwrap_or(file);
        for (number, line) in (1..).zip(file.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split_once(':') {
                Some((name, hash)) if is_name(name) => {
                    let parsed = ParsedHash::new(hash).ok_or(UsersError::Line(number))?;
                    let (memory, passes) = (parsed.params.m_cost(), parsed.params.t_cost());
                    if memory > MEMORY_KIB_MAX {
                        return Err(UsersError::Memory { line: number, asked: memory });
                    }
                    if passes > PASSES_MAX {
                        return Err(UsersError::Passes { line: number, asked: passes });
                    }
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
    fn password_file_round_trips() {
        let mut users = Users::default();
        users.set("alice", "one").unwrap();
        users.set("bob", "").unwrap();
        users.set("alice", "two").unwrap();
        let read: Users = format!("# people\n\n{users}").parse().unwrap();
        assert_eq!((&read, read.len()), (&users, 2));
        let with_byte_order_mark: Users = format!("\u{feff}{users}").parse().unwrap();
        assert_eq!(with_byte_order_mark, users);
        let mut workspace = Workspace::default();
        let mut verify = |name, password: &[u8]| read.verify(name, password, &mut workspace);
        assert!(verify("alice", b"two") && verify("bob", b""));
        assert!(!verify("alice", b"one") && !verify("carol", b"two"));
        assert!(!verify("alice", b"\xff"));
        assert!(!Users::default().verify("alice", b"two", &mut workspace));
        assert!(!format!("{read:?}").contains("argon2"), "debug output contains no hashes");
    }

    #[test]
    fn hashes_with_different_parameters_share_a_workspace() {
        let mut users = Users::default();
        let mut workspace = Workspace::default();
        for (number, algorithm) in
            [Algorithm::Argon2d, Algorithm::Argon2i, Algorithm::Argon2id].into_iter().enumerate()
        {
            for (version, memory, passes) in [(Version::V0x10, 64, 3), (Version::V0x13, 1_024, 1)] {
                // Hashed by the library, with its own memory.
                let params = Params::new(memory, passes, 2, Some(24)).unwrap();
                let argon2 = Argon2::new(algorithm, version, params);
                let hash =
                    argon2.hash_password_with_salt(b"secret", b"saltsalt").unwrap().to_string();
                let name = format!("user {number} {memory}");
                users.hashes.insert(name.clone(), hash);
                assert!(
                    users.verify(&name, b"secret", &mut workspace),
                    "{algorithm:?} {version:?}"
                );
                assert!(
                    !users.verify(&name, b"Secret", &mut workspace),
                    "{algorithm:?} {version:?}"
                );
            }
        }
        assert_eq!(workspace.0.len(), 1_024, "as large as the largest hash needs");
        let users: Users = users.to_string().parse().unwrap();
        assert_eq!(users.len(), 6);
    }

    /// A test vector of the reference implementation, `phc-winner-argon2`.
    #[test]
    fn hash_of_the_reference_implementation_is_verified() {
        let hash = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ\
                    $CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let users: Users = format!("alice:{hash}").parse().unwrap();
        let mut workspace = Workspace::default();
        assert!(users.verify("alice", b"password", &mut workspace));
        assert!(!users.verify("alice", b"Password", &mut workspace));
    }

    #[test]
    fn replaced_users_cannot_log_in() {
        let known = |name| {
            let mut users = Users::default();
            users.set(name, "secret").unwrap();
            users
        };
        let shared = SharedUsers::from(known("alice"));
        let broker = shared.clone();
        shared.replace(known("bob"));
        let (current, mut workspace) = (broker.current(), Workspace::default());
        assert!(current.verify("bob", b"secret", &mut workspace));
        assert!(!current.verify("alice", b"secret", &mut workspace));
    }

    #[test]
    fn invalid_password_file_is_rejected_with_line_number() {
        let hash =
            |costs: &str| format!("alice:$argon2id$v=19${costs}$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo");
        let good = hash("m=65536,t=16,p=4");
        assert!(good.parse::<Users>().is_ok());
        let line_2 = |costs: &str| format!("\n{}", hash(costs));
        for (file, error) in [
            (&*format!("{good}\n{good}"), UsersError::Twice(2)),
            (&line_2("m=65537,t=2,p=1"), UsersError::Memory { line: 2, asked: 65_537 }),
            (&line_2("m=4294967295,t=2,p=1"), UsersError::Memory { line: 2, asked: u32::MAX }),
            (&line_2("m=19456,t=17,p=1"), UsersError::Passes { line: 2, asked: 17 }),
            (&line_2("m=7,t=2,p=1"), UsersError::Line(2)),
            ("alice:$argon2id$x", UsersError::Line(1)),
            ("alice:$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ", UsersError::Line(1)),
            (
                "alice:$pbkdf2$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo",
                UsersError::Line(1),
            ),
            ("alice", UsersError::Line(1)),
            ("\n:$argon2id$x", UsersError::Line(2)),
            ("alice:secret", UsersError::Line(1)),
            ("alice:$7$101$mosquitto", UsersError::Line(1)),
        ] {
            assert_eq!(file.parse::<Users>(), Err(error), "{file}");
        }
        for name in ["", "a:b", "a\nb", "#a", " a"] {
            assert_eq!(Users::default().set(name, "x"), Err(UsersError::Name));
        }
    }
}
