//! The lease of a leader: renewed by a task of its own, and counted by the monotonic clock here.
//!
//! A leader counts from before it asked, and stops a margin early. etcd counts from a later moment, so whoever is granted the
//! lead next has it after that, unless this process was stopped between looking at the clock and acting on it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::Etcd;
use crate::error::Failure;
use crate::role::RoleSender;

/// Pauses between two tries to renew that fail at once.
const PAUSE: Duration = Duration::from_millis(200);

/// Part of its time that a leader leaves unused: for the answers that it has begun to give, and for clocks that run unequally.
const MARGIN_PART: u32 = 5;

/// A lease that is renewed until it is dropped, or until that fails for too long. A leader's role says so then.
#[derive(Debug)]
pub(crate) struct Lease {
    id: i64,
    used: Duration,
    state: watch::Receiver<State>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug)]
enum State {
    /// It holds until then.
    Until(Instant),
    /// It does not, for this reason.
    Lost(String),
}

impl Lease {
    /// Asks for a lease and renews it from now on. Tells when it is lost.
    pub(crate) async fn grant(
        etcd: &Etcd,
        ttl: Duration,
        role: RoleSender,
    ) -> Result<Self, Failure> {
        let asked = Instant::now();
        // etcd may grant more; nobody is to wait for longer than was asked for.
        let (id, granted) = etcd.grant(ttl).await?;
        let used = ttl.min(granted) * (MARGIN_PART - 1) / MARGIN_PART;
        let (sender, state) = watch::channel(State::Until(asked + used));
        let task = tokio::spawn(renew(etcd.clone(), id, used, asked + used, sender, role));
        Ok(Self { id, used, state, task })
    }

    pub(crate) const fn id(&self) -> i64 {
        self.id
    }

    /// How much of its time is used, after each renewal.
    pub(crate) const fn used(&self) -> Duration {
        self.used
    }

    /// Until when it holds; an instant that has passed if it does not any more.
    ///
    /// # Errors
    /// [`Failure::Lost`] when it is known to be lost.
    pub(crate) fn until(&self) -> Result<Instant, Failure> {
        match &*self.state.borrow() {
            State::Until(until) => Ok(*until),
            State::Lost(reason) => Err(Failure::Lost(reason.clone())),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.until().is_ok_and(|until| Instant::now() < until)
    }

    /// Lets it run out.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }

    /// Gives it back, so that nobody needs to wait until it runs out.
    pub(crate) async fn revoke(&self, etcd: &Etcd) -> Result<(), Failure> {
        self.stop();
        etcd.revoke(self.id).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn renew(
    etcd: Etcd,
    id: i64,
    used: Duration,
    mut until: Instant,
    state: watch::Sender<State>,
    role: RoleSender,
) {
    let mut next = Instant::now() + used / 3;
    let mut last = None;
    let reason = loop {
        tokio::time::sleep_until(next.min(until)).await;
        let now = Instant::now();
        if now >= until {
            let why = last.map_or_else(
                || "this process stood still".to_owned(),
                |last: Failure| last.to_string(),
            );
            break format!("the lease was not renewed for {used:?}: {why}");
        }
        match etcd.renew(id, etcd.timeout().min(until - now)).await {
            Ok(true) => {
                until = now + used;
                next = now + used / 3;
                last = None;
                state.send_replace(State::Until(until));
            }
            Ok(false) => break "etcd has ended the lease".to_owned(),
            Err(failure) => {
                tracing::debug!(%failure, "the lease was not renewed yet");
                last = Some(failure);
                next = Instant::now() + PAUSE;
            }
        }
    };
    tracing::warn!(%reason, "a lease is lost");
    // In this order, so that whoever is told that it leads finds out.
    state.send_replace(State::Lost(reason.clone()));
    role.lose(reason);
}
