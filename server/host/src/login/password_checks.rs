//! Password checks with limited concurrency, a cache of recent logins, and a throttle for wrong
//! passwords.

mod throttle;
mod waiting;

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use argon2::password_hash::try_generate_salt;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use statestore_mqtt::Reason;
use throttle::LoginThrottle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use waiting::Waiting;

use crate::login::users::{SharedUsers, Users, Workspace};
use crate::sync::lock;

/// Maximum number of concurrent password checks. Each one occupies a thread while it runs, and 19
/// MiB permanently.
const CHECKS_MAX: usize = 2;

/// Time for which a verified password is cached.
const VERIFIED_FOR: Duration = Duration::from_secs(60 * 60);

/// A login attempt.
pub(crate) struct Login<'a> {
    pub(crate) address: IpAddr,
    pub(crate) name: Option<&'a str>,
    pub(crate) password: Option<Vec<u8>>,
}

/// Checks logins.
pub(crate) struct Logins {
    users: SharedUsers,
    checks: Semaphore,
    waiting: Waiting,
    /// Unused workspaces: at most one per concurrent check.
    workspaces: Mutex<Vec<Workspace>>,
    verified: Mutex<VerifiedPasswords>,
    throttle: Mutex<LoginThrottle>,
}

impl Logins {
    pub(crate) fn new(users: SharedUsers) -> Self {
        Self {
            verified: Mutex::new(VerifiedPasswords::new(users.current())),
            users,
            checks: Semaphore::const_new(CHECKS_MAX),
            waiting: Waiting::default(),
            workspaces: Mutex::default(),
            throttle: Mutex::default(),
        }
    }

    /// Checks a user name and a password. Skips the check if `is_disconnected` returns true at its
    /// turn.
    pub(crate) async fn check(
        &self,
        login: Login<'_>,
        is_disconnected: impl Fn() -> bool,
    ) -> Result<(), Reason> {
        let refused = Err(Reason::BAD_USER_NAME_OR_PASSWORD);
        let Some((name, password)) = login.name.zip(login.password) else { return refused };
        let users = self.users.current();
        if lock(&self.verified).contains(&users, name, &password) {
            return Ok(());
        }
        let is_throttled =
            || lock(&self.throttle).is_throttled(Instant::now(), login.address, name);
        if is_throttled() {
            return Err(Reason::CONNECTION_RATE_EXCEEDED);
        }
        let Some(_place) = self.waiting.enter(login.address) else {
            return Err(Reason::SERVER_BUSY);
        };
        let Ok(_permit) = self.checks.acquire().await else { return refused };
        if is_disconnected() {
            return refused;
        }
        // Earlier checks in the queue may have failed.
        if is_throttled() {
            return Err(Reason::CONNECTION_RATE_EXCEEDED);
        }
        let mut workspace = lock(&self.workspaces).pop().unwrap_or_default();
        let (known, owned) = (Arc::clone(&users), name.to_owned());
        // The hash is slow on purpose, so it must not block the runtime.
        let check = tokio::task::spawn_blocking(move || {
            let is_right = known.verify(&owned, &password, &mut workspace);
            (is_right, password, workspace)
        });
        let Ok((is_right, password, workspace)) = check.await else { return refused };
        lock(&self.workspaces).push(workspace);
        if !is_right {
            lock(&self.throttle).record_failure(Instant::now(), login.address, name);
            return refused;
        }
        // The users may have been replaced while this check waited.
        if self.users.current().hash(name) != users.hash(name) {
            return refused;
        }
        lock(&self.verified).add(&users, name, &password);
        Ok(())
    }
}

/// Recently verified passwords. They are stored as keyed hashes, and the key never leaves this
/// process.
struct VerifiedPasswords {
    key: [u8; 16],
    /// Users whose passwords are cached. When they are replaced, entries stay only for users with
    /// an unchanged hash.
    users: Arc<Users>,
    /// Hash and time of the last verified password of each user.
    hashes: BTreeMap<String, (u128, Instant)>,
}

impl VerifiedPasswords {
    fn new(users: Arc<Users>) -> Self {
        // The function returns 16 random bytes of the system. If the system has none, the key is
        // zero and nothing is cached.
        let key = try_generate_salt().unwrap_or_default();
        Self { key, users, hashes: BTreeMap::new() }
    }

    fn contains(&mut self, users: &Arc<Users>, name: &str, password: &[u8]) -> bool {
        self.update_users(users);
        self.hashes.get(name).is_some_and(|(hash, since)| {
            since.elapsed() < VERIFIED_FOR && *hash == self.hash(name, password)
        })
    }

    /// Removes users that do not exist any more or have another password.
    fn update_users(&mut self, users: &Arc<Users>) {
        if Arc::ptr_eq(users, &self.users) {
            return;
        }
        let before = std::mem::replace(&mut self.users, Arc::clone(users));
        self.hashes
            .retain(|name, _| users.hash(name).is_some_and(|hash| before.hash(name) == Some(hash)));
    }

    fn add(&mut self, users: &Arc<Users>, name: &str, password: &[u8]) {
        if self.key == [0; 16] {
            return;
        }
        self.update_users(users);
        let hash = self.hash(name, password);
        self.hashes.insert(name.to_owned(), (hash, Instant::now()));
    }

    fn hash(&self, name: &str, password: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_usize(name.len());
        hasher.write(name.as_bytes());
        hasher.write(password);
        hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests;
