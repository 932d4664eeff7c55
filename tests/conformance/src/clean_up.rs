//! Removal of the test keys.

use crate::cases::pages::page;
use crate::request::{By, request};
use crate::trial::{ONE, Stop, Trial, Written, ZERO};

/// Maximum number of pages in the listing of remaining keys.
const PAGES_MAX: usize = 64;

/// Above the number of keys of a run. A store that lists more returns invented keys.
const KEYS_MAX: usize = 2_000;

impl Trial {
    /// Removes the test keys and counts them. Keys that remain stay in `written`, also if the
    /// future is dropped.
    pub(crate) async fn clean_up(&mut self, removed: &mut usize) {
        // Lost connections are opened again, and a recovered store is used again.
        self.reset_failures();
        let listed = self.list_left().await;
        let keys: Vec<_> = self.written.iter().map(|(key, state)| (key.clone(), *state)).collect();
        for (key, state) in keys {
            if self.is_given_up() {
                break;
            }
            // A listing shows whether a refused key exists. It never contains keys that are not
            // UTF-8.
            if state == Written::Refused && listed && std::str::from_utf8(&key).is_ok() {
                self.written.remove(&key);
                continue;
            }
            // A token ahead of all tokens of the run, in case the clock of the store has advanced.
            let tokens = [None, Some(self.stamp(55_000))];
            for token in tokens {
                match self.request(&request!["DEL", key].maybe_token(token.as_deref())).await {
                    Ok(reply) if reply.0.payload == ONE || reply.0.payload == ZERO => {
                        *removed += usize::from(reply.0.payload == ONE);
                        self.written.remove(&key);
                        break;
                    }
                    Ok(_) => {}
                    Err(Stop::Skipped(_)) if state == Written::Refused => {
                        self.written.remove(&key);
                        break;
                    }
                    Err(_) => {
                        self.drop_connections();
                        break;
                    }
                }
            }
        }
        for by in [By::A, By::B] {
            // Dropping a connection that cannot be closed is enough.
            let _ = self.disconnect(by).await;
        }
    }

    /// Adds the keys that the store lists below the prefix. Returns whether the store supports
    /// listing.
    async fn list_left(&mut self) -> bool {
        let pattern = format!("{}*", self.own_prefix());
        let mut token: Option<Vec<u8>> = None;
        for _ in 0..PAGES_MAX {
            let request = match &token {
                Some(token) => request!["SCAN", pattern, token],
                None => request!["SCAN", pattern],
            };
            let Ok(reply) = self.request(&request).await else { return false };
            let Some(page) = page(&reply.0.payload) else { return false };
            // Keys outside the prefix are never removed.
            let own = self.own_prefix();
            for key in page.keys.into_iter().filter(|key| key.starts_with(own.as_bytes())) {
                if self.written.len() >= KEYS_MAX {
                    return false;
                }
                self.written.insert(key, Written::Answered);
            }
            token = page.token;
            if token.is_none() {
                return true;
            }
        }
        false
    }
}
