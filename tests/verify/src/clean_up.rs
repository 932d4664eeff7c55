//! Removing what was written.

use crate::ask::{By, ask};
use crate::cases::pages::page;
use crate::trial::{ONE, Stop, Trial, Written, ZERO};

/// Pages of what is left that are asked for at most.
const PAGES_MAX: usize = 64;

/// Keys that a run has at most, and more: whoever lists more below the prefix makes them up, to be asked about each.
const KEYS_MAX: usize = 2_000;

impl Trial {
    /// Removes what was written; how many keys were. What is left stands in `written`, also when this is dropped halfway.
    pub(crate) async fn clean_up(&mut self, removed: &mut usize) {
        // A connection that was lost is made anew, and a store that has come back is asked.
        self.hope();
        let listed = self.list_left().await;
        let keys: Vec<_> = self.written.iter().map(|(key, state)| (key.clone(), *state)).collect();
        for (key, state) in keys {
            if self.is_given_up() {
                break;
            }
            // Where the store lists what is there, a refusal is known to be one; what is no text it never lists.
            if state == Written::Refused && listed && std::str::from_utf8(&key).is_ok() {
                self.written.remove(&key);
                continue;
            }
            // Not lower than any token of the run, should the store have gone ahead.
            let tokens = [None, Some(self.stamp(55_000))];
            for token in tokens {
                match self.ask(&ask!["DEL", key].maybe_token(token.as_deref())).await {
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
            // What is left open is closed with this.
            let _ = self.disconnect(by).await;
        }
    }

    /// Adds what the store lists below the prefix; whether it lists keys at all.
    async fn list_left(&mut self) -> bool {
        let pattern = format!("{}*", self.own_prefix());
        let mut token: Option<Vec<u8>> = None;
        for _ in 0..PAGES_MAX {
            let ask = match &token {
                Some(token) => ask!["SCAN", pattern, token],
                None => ask!["SCAN", pattern],
            };
            let Ok(reply) = self.ask(&ask).await else { return false };
            let Some(page) = page(&reply.0.payload) else { return false };
            // Whatever it says, other keys are not ours.
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
