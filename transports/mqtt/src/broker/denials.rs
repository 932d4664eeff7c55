//! What the rules did not allow, for whoever keeps a log.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::string::String;

use super::Broker;
use crate::reason::Reason;

/// Denials that wait to be told. Every client can cause them, as many as it likes: what comes beyond is counted.
const WAITING_MAX: usize = 64;

/// Bytes of a name that are kept, so that all of them together have some 30 KiB.
const NAME_MAX: usize = 128;

/// What was not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denied {
    /// A message: its topic, or where its answer is to go.
    Publish,
    /// A subscription.
    Subscribe,
    /// A will, and so the connection that it came with.
    Will,
    /// To stay: what it had [proved](super::Admission::expires_at) is true no longer.
    Stay,
}

/// Something that a client may not do. Names are shortened to their first 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What it wanted to do.
    pub denied: Denied,
    /// Its client id.
    pub client_id: String,
    /// The topic, or the topic filter.
    pub topic: String,
    /// Where the answer was to go, if there was to be one.
    pub response_topic: Option<String>,
    /// What the client was told, if its packet is one that is answered.
    pub reason: Reason,
    /// How many came after it and are not told one by one, since so many wait.
    pub left_out: u64,
}

#[derive(Debug, Default)]
pub(super) struct Denials {
    waiting: VecDeque<Denial>,
    total: u64,
}

impl Denials {
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn push(
        &mut self,
        denied: Denied,
        client_id: &str,
        (topic, response_topic): (&str, Option<&str>),
        reason: Reason,
    ) {
        self.total += 1;
        if self.waiting.len() >= WAITING_MAX {
            if let Some(last) = self.waiting.back_mut() {
                last.left_out += 1;
            }
            return;
        }
        self.waiting.push_back(Denial {
            denied,
            client_id: shortened(client_id),
            topic: shortened(topic),
            response_topic: response_topic.map(shortened),
            reason,
            left_out: 0,
        });
    }
}

fn shortened(name: &str) -> String {
    let end = (0..=NAME_MAX.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    end.and_then(|end| name.get(..end)).unwrap_or_default().to_owned()
}

impl Broker {
    /// The next thing that the rules did not allow. It need not be asked for: no more than some are kept, and
    /// [`Stats::denied`](super::Stats::denied) counts all.
    #[must_use]
    pub fn poll_denial(&mut self) -> Option<Denial> {
        self.denials.waiting.pop_front()
    }
}
