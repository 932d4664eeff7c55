//! Who may connect with which password: the lines of a password file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{Output, PasswordHash, PasswordHasher as _, Salt, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};

/// KiB of memory that a hash in a password file may take: more than three times as much as those that are made here.
const MEMORY_KIB_MAX: u32 = 64 << 10;

/// Passes over it that a hash may take; those that are made here take two. Sixteen over all of it take about a second.
const PASSES_MAX: u32 = 16;

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
    /// A user name is empty, or has a colon, a control character or what is special in a topic in it.
    #[error("{0:?} cannot be a user name: it has to be one line without any of : / + #")]
    Name(String),
    /// A line of the file is not `NAME:HASH`.
    #[error(
        "line {0} is not NAME:HASH with an Argon2 hash; make such lines with `statestore passwd`"
    )]
    Line(usize),
    /// A hash would take too much memory each time that somebody logs in.
    #[error("line {line}: this hash takes {asked} KiB of memory; {MEMORY_KIB_MAX} are allowed")]
    Memory {
        /// The line.
        line: usize,
        /// KiB.
        asked: u32,
    },
    /// A hash would take too much time each time that somebody logs in.
    #[error(
        "line {line}: this hash takes {asked} passes over its memory; {PASSES_MAX} are allowed"
    )]
    Passes {
        /// The line.
        line: usize,
        /// Passes.
        asked: u32,
    },
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

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.hashes.keys().map(String::as_str)
    }

    pub(crate) fn hash(&self, name: &str) -> Option<&str> {
        self.hashes.get(name).map(String::as_str)
    }

    /// Whether there is none, so that nobody can connect.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether this is the password of that user; as slow as [`set`](Self::set), for users that are not known too.
    pub(crate) fn verify(&self, name: &str, password: &[u8], workspace: &mut Workspace) -> bool {
        // Somebody's hash, so that the time it takes does not tell which names there are.
        let (is_known, hash) = match self.hashes.get(name) {
            Some(hash) => (true, Some(hash)),
            None => (false, self.hashes.values().next()),
        };
        let Some(hash) = hash.and_then(|hash| Parsed::new(hash)) else { return false };
        hash.is_of(password, workspace).unwrap_or(false) && is_known
    }
}

/// The memory that a hash takes while it is made, kept for the next one: what is given back after each stays with the
/// allocator, once for each thread.
#[derive(Default)]
pub(crate) struct Workspace(Vec<Block>);

impl Workspace {
    fn blocks(&mut self, count: usize) -> &mut [Block] {
        if self.0.len() < count {
            // Not in place: that would have both of them for a moment, and what is there is of no use.
            self.0 = Vec::new();
            self.0.resize(count, Block::new());
        }
        &mut self.0
    }
}

/// A hash with everything that is needed to make it once more.
struct Parsed<'a> {
    hash: PasswordHash<'a>,
    salt: Salt<'a>,
    output: Output,
    params: Params,
}

impl<'a> Parsed<'a> {
    /// `None` when it is no Argon2 hash, or not all of one.
    fn new(text: &'a str) -> Option<Self> {
        let hash = PasswordHash::new(text).ok()?;
        let (salt, output) = hash.salt.zip(hash.hash)?;
        let params = Params::try_from(&hash).ok()?;
        Algorithm::try_from(hash.algorithm).ok()?;
        Some(Self { hash, salt, output, params })
    }

    fn is_of(&self, password: &[u8], workspace: &mut Workspace) -> Option<bool> {
        let algorithm = Algorithm::try_from(self.hash.algorithm).ok()?;
        let version = self.hash.version.map(Version::try_from).transpose().ok()?;
        let mut space = [0; Salt::MAX_LENGTH];
        let salt = self.salt.decode_b64(&mut space).ok()?;
        let argon2 = Argon2::new(algorithm, version.unwrap_or_default(), self.params.clone());
        let blocks = workspace.blocks(self.params.block_count());
        let output = Output::init_with(self.output.len(), |out| {
            Ok(argon2.hash_password_into_with_memory(password, salt, out, blocks)?)
        });
        // In the same time wherever they differ: the library sees to that.
        Some(output.ok()? == self.output)
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
    /// From now on these connect and no others. [`Broker::recheck`](crate::Broker::recheck) sees to those who are connected. Who
    /// has logged in lately is still known if its hash is the same.
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

/// Client ids begin with it, and these are levels of topics.
pub(crate) fn is_name(name: &str) -> bool {
    let is_bad = |letter: char| matches!(letter, ':' | '/' | '+' | '#') || letter.is_control();
    !name.is_empty() && name.trim() == name && !name.contains(is_bad)
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
                Some((name, hash)) if is_name(name) => {
                    let parsed = Parsed::new(hash).ok_or(UsersError::Line(number))?;
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
    fn a_file_is_read_as_it_is_written() {
        let mut users = Users::default();
        users.set("alice", "one").unwrap();
        users.set("bob", "").unwrap();
        users.set("alice", "two").unwrap();
        let read: Users = format!("# people\n\n{users}").parse().unwrap();
        assert_eq!((&read, read.len()), (&users, 2));
        let mut workspace = Workspace::default();
        let mut verify = |name, password: &[u8]| read.verify(name, password, &mut workspace);
        assert!(verify("alice", b"two") && verify("bob", b""));
        assert!(!verify("alice", b"one") && !verify("carol", b"two"));
        assert!(!verify("alice", b"\xff"));
        assert!(!Users::default().verify("alice", b"two", &mut workspace));
        assert!(!format!("{read:?}").contains("argon2"), "hashes stay out of logs");
    }

    #[test]
    fn hashes_of_every_kind_share_a_workspace() {
        let mut users = Users::default();
        let mut workspace = Workspace::default();
        let salt = SaltString::encode_b64(b"saltsalt").unwrap();
        for (number, algorithm) in
            [Algorithm::Argon2d, Algorithm::Argon2i, Algorithm::Argon2id].into_iter().enumerate()
        {
            for (version, memory, passes) in [(Version::V0x10, 64, 3), (Version::V0x13, 1_024, 1)] {
                // The library's own way, which has memory of its own.
                let params = Params::new(memory, passes, 2, Some(24)).unwrap();
                let argon2 = Argon2::new(algorithm, version, params);
                let hash = argon2.hash_password(b"secret", &salt).unwrap().to_string();
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
        assert_eq!(workspace.0.len(), 1_024, "as much as the largest takes");
        let users: Users = users.to_string().parse().unwrap();
        assert_eq!(users.len(), 6);
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
        let (current, mut workspace) = (broker.current(), Workspace::default());
        assert!(current.verify("bob", b"secret", &mut workspace));
        assert!(!current.verify("alice", b"secret", &mut workspace));
    }

    #[test]
    fn what_is_no_password_file_is_refused_with_its_line() {
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
            assert_eq!(Users::default().set(name, "x"), Err(UsersError::Name(name.into())));
        }
    }
}
