//! Passwords, a few at a time, and none from whoever only guesses.

mod guesses;

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argon2::password_hash::rand_core::{OsRng, RngCore as _};
use guesses::Guesses;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use statestore_mqtt::Reason;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::users::{SharedUsers, Users, Workspace};

/// Passwords looked at at a time: each takes a thread for a while, and 19 MiB for good.
const CHECKS_MAX: usize = 2;

/// Clients that wait for that; each has its CONNECT here, of 20 KiB at most. Others are told to come later.
const WAITING_MAX: usize = 64;

/// How long a right password is known without a look at the file's hash.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// Who wants to log in.
pub(crate) struct Login<'a> {
    pub(crate) address: IpAddr,
    pub(crate) name: Option<&'a str>,
    pub(crate) password: Option<Vec<u8>>,
}

/// Decides who logs in.
pub(crate) struct Logins {
    users: SharedUsers,
    checks: Semaphore,
    waiting: Semaphore,
    /// As many as are ever needed at a time.
    workspaces: Mutex<Vec<Workspace>>,
    remembered: Mutex<Remembered>,
    guesses: Mutex<Guesses>,
}

impl Logins {
    pub(crate) fn new(users: SharedUsers) -> Self {
        Self {
            remembered: Mutex::new(Remembered::new(users.current())),
            users,
            checks: Semaphore::const_new(CHECKS_MAX),
            waiting: Semaphore::const_new(WAITING_MAX),
            workspaces: Mutex::default(),
            guesses: Mutex::default(),
        }
    }

    /// Whether this is the password of that user, unless `is_gone` says by the time of its turn that nobody waits for the answer.
    pub(crate) async fn check(
        &self,
        login: Login<'_>,
        is_gone: impl Fn() -> bool,
    ) -> Result<(), Reason> {
        let refused = Err(Reason::BAD_USER_NAME_OR_PASSWORD);
        let Some((name, password)) = login.name.zip(login.password) else { return refused };
        let users = self.users.current();
        if lock(&self.remembered).knows(&users, name, &password) {
            return Ok(());
        }
        let is_paused = || lock(&self.guesses).is_paused(Instant::now(), login.address, name);
        if is_paused() {
            return Err(Reason::CONNECTION_RATE_EXCEEDED);
        }
        let Ok(_place) = self.waiting.try_acquire() else { return Err(Reason::SERVER_BUSY) };
        let Ok(_permit) = self.checks.acquire().await else { return refused };
        if is_gone() {
            return refused;
        }
        // Those before it in the queue may have been guesses.
        if is_paused() {
            return Err(Reason::CONNECTION_RATE_EXCEEDED);
        }
        let mut workspace = lock(&self.workspaces).pop().unwrap_or_default();
        let (known, owned) = (Arc::clone(&users), name.to_owned());
        // Slow on purpose, so not here, where everything else would wait.
        let check = tokio::task::spawn_blocking(move || {
            let is_right = known.verify(&owned, &password, &mut workspace);
            (is_right, password, workspace)
        });
        let Ok((is_right, password, workspace)) = check.await else { return refused };
        lock(&self.workspaces).push(workspace);
        if !is_right {
            lock(&self.guesses).add(Instant::now(), login.address, name);
            return refused;
        }
        lock(&self.remembered).add(&users, name, &password);
        Ok(())
    }
}

/// Who has logged in lately. No password is here, only its hash with a key that never leaves this process.
struct Remembered {
    key: [u8; 16],
    /// Whose passwords these are. With others those are remembered whose hash in the file is the same.
    users: Arc<Users>,
    /// One for each user at most.
    hashes: BTreeMap<String, (u128, Instant)>,
}

impl Remembered {
    fn new(users: Arc<Users>) -> Self {
        let mut key = [0; 16];
        // Without random numbers there is no key, and nobody is remembered.
        let has_key = OsRng.try_fill_bytes(&mut key).is_ok();
        Self { key: if has_key { key } else { [0; 16] }, users, hashes: BTreeMap::new() }
    }

    fn knows(&mut self, users: &Arc<Users>, name: &str, password: &[u8]) -> bool {
        self.adopt(users);
        self.hashes.get(name).is_some_and(|(hash, since)| {
            since.elapsed() < REMEMBERED && *hash == self.hash(name, password)
        })
    }

    /// Forgets who is no user any more, or has another password.
    fn adopt(&mut self, users: &Arc<Users>) {
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
        self.adopt(users);
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
