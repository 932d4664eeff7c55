//! Notifications on their way, so that those which are lost with a connection are sent again on the next.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use bytes::Bytes;

use super::watches::Watch;
use crate::hlc::Hlc;
use crate::mqtt::{Publish, PublishToken};

/// A notification that is not a packet yet, or may have to be one again.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) watch: Arc<Watch>,
    pub(super) payload: Bytes,
    pub(super) version: Hlc,
}

impl Notice {
    pub(super) fn to_publish(&self) -> Publish {
        self.watch.notification(self.payload.clone(), self.version.clone())
    }
}

/// Notifications that were handed out, in order, until their PUBACK.
///
/// Writes fill it, through their notifications, and a broker that does not acknowledge. Past its limits, which are those of the
/// queue, the oldest is forgotten: it is lost if its connection is.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    notices: VecDeque<(Notice, usize)>,
    count_max: usize,
    bytes: usize,
    bytes_max: usize,
}

impl Unacknowledged {
    pub(super) const fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { notices: VecDeque::new(), count_max, bytes: 0, bytes_max }
    }

    pub(super) fn push(&mut self, notice: Notice, bytes: usize) {
        self.bytes += bytes;
        self.notices.push_back((notice, bytes));
        while self.notices.len() > self.count_max || self.bytes > self.bytes_max {
            let Some((_, bytes)) = self.notices.pop_front() else { return };
            self.bytes -= bytes;
        }
    }

    /// The oldest of this registration has its PUBACK. Brokers acknowledge in order, so it is found soon.
    pub(super) fn settled(&mut self, token: PublishToken) {
        let is_it = |(notice, _): &(Notice, usize)| notice.watch.number() == token.0;
        let found = self.notices.iter().position(is_it);
        if let Some((_, bytes)) = found.and_then(|at| self.notices.remove(at)) {
            self.bytes -= bytes;
        }
    }

    pub(super) fn drain_newest_first(&mut self) -> impl Iterator<Item = (Notice, usize)> {
        self.bytes = 0;
        self.notices.drain(..).rev()
    }
}
