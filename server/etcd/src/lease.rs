//! Lease of a leader, renewed by a separate task. Its time is measured locally, by a clock that
//! continues during a suspend.
//!
//! A leader measures from before its request, and stops a margin early. etcd measures from a later
//! moment. So the next leader begins later than this one stops, unless this process is stopped
//! between checking the clock and acting on it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::boot_clock::Moment;
use crate::client::Etcd;
use crate::error::Failure;
use crate::head::Head;
use crate::keys::Keys;
use crate::known_head::KnownHead;
use crate::role::RoleSender;

/// Pause after a failed renewal.
const PAUSE: Duration = Duration::from_millis(200);

/// The margin is the lease divided by this. A leader leaves it unused, for responses in progress
/// and for clocks with different rates.
const MARGIN_DIVISOR: u32 = 5;

/// A lease that is renewed until it is dropped, or until renewing fails for too long. The role of a
/// leader then becomes [`Lost`](crate::Role::Lost).
#[derive(Debug)]
pub(crate) struct Lease {
    id: i64,
    usable_time: Duration,
    state: watch::Receiver<State>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug)]
enum State {
    /// Held until this moment.
    Until(Moment),
    /// Lost for this reason.
    Lost(String),
}

impl Lease {
    /// Requests a lease and starts to renew it. When it is lost, sets the role, and revokes the
    /// lease as soon as etcd can be reached.
    pub(crate) async fn grant(
        etcd: &Etcd,
        ttl: Duration,
        role: RoleSender,
        head_check: HeadCheck,
    ) -> Result<Self, Failure> {
        let requested = Moment::now();
        // etcd may grant a longer lease than requested; the rest is not used.
        let (id, granted) = etcd.grant(ttl).await?;
        let usable_time = ttl.min(granted) * (MARGIN_DIVISOR - 1) / MARGIN_DIVISOR;
        let until = requested.after(usable_time);
        let (sender, state) = watch::channel(State::Until(until));
        let etcd = etcd.clone();
        let task = tokio::spawn(async move {
            let lost = renew(&etcd, id, usable_time, until, &sender, &head_check).await;
            tracing::info!(reason = %lost, "lease lost");
            // In this order: a journal that sets its role to leading checks the state after that.
            sender.send_replace(State::Lost(lost.clone()));
            role.lose(lost);
            // A separate task, because this one ends with its store. At most one such task waits
            // for etcd, because no election can be won without etcd.
            tokio::spawn(revoke_when_reachable(etcd, id));
        });
        Ok(Self { id, usable_time, state, task })
    }

    pub(crate) const fn id(&self) -> i64 {
        self.id
    }

    /// Returns the usable time after each renewal: the lease without the margin.
    pub(crate) const fn usable_time(&self) -> Duration {
        self.usable_time
    }

    /// Returns the remaining time; zero if it has passed.
    ///
    /// # Errors
    /// [`Failure::Lost`] if the lease is lost.
    pub(crate) fn left(&self) -> Result<Duration, Failure> {
        match &*self.state.borrow() {
            State::Until(until) => Ok(until.left()),
            State::Lost(reason) => Err(Failure::Lost(reason.clone())),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.left().is_ok_and(|left| !left.is_zero())
    }

    /// Stops renewing, so that the lease expires.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }

    /// Revokes the lease, so that the next leader does not wait until it expires.
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

/// Renews the lease until that fails for too long, or until another writer has changed the head.
/// Returns the reason of the loss.
async fn renew(
    etcd: &Etcd,
    id: i64,
    usable_time: Duration,
    mut until: Moment,
    state: &watch::Sender<State>,
    head_check: &HeadCheck,
) -> String {
    let mut pause = usable_time / 3;
    let mut last = None;
    loop {
        tokio::time::sleep(pause.min(until.left())).await;
        let (requested, left) = (Moment::now(), until.left());
        if left.is_zero() {
            let reason = last.map_or_else(
                || "this process was stopped or the machine suspended".to_owned(),
                |last: Failure| last.to_string(),
            );
            return format!("the lease was not renewed for {usable_time:?}: {reason}");
        }
        match etcd.renew(id, etcd.timeout().min(left)).await {
            Ok(true) => {
                until = requested.after(usable_time);
                pause = usable_time / 3;
                last = None;
                state.send_replace(State::Until(until));
                if let Err(failure) = head_check.check(etcd, id).await {
                    return failure.to_string();
                }
            }
            Ok(false) => return "the lease does not exist in etcd any more".to_owned(),
            Err(failure) => {
                tracing::debug!(%failure, "lease not renewed");
                last = Some(failure);
                pause = PAUSE;
            }
        }
    }
}

/// Revokes a lost lease, as soon as etcd can be reached, so that the next leader does not wait for
/// its end. etcd extends leases when it elects a new leader itself.
async fn revoke_when_reachable(etcd: Etcd, id: i64) {
    while etcd.revoke(id).await.is_err_and(|failure| failure.is_transient()) {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Checks the head of the chain for a leader, which may have nothing to commit.
#[derive(Clone, Debug)]
pub(crate) struct HeadCheck {
    pub(crate) keys: Keys,
    pub(crate) known: KnownHead,
}

impl HeadCheck {
    /// Checks that the head is that of the writer with this lease. If etcd cannot be reached, the
    /// next renewal checks again.
    ///
    /// # Errors
    /// [`Failure`] if it is not.
    async fn check(&self, etcd: &Etcd, writer: i64) -> Result<(), Failure> {
        // Read before the request, because the writer can raise the head until etcd responds.
        let Some(seen) = self.known.current().filter(|seen| seen.writer == writer) else {
            return Ok(());
        };
        let Ok(found) = etcd.find(&[self.keys.head()]).await else { return Ok(()) };
        let found = found.entries.into_iter().flatten().next();
        check_head(&self.keys, &seen, found.and_then(|head| Head::decode(head.value())).as_ref())
    }
}

/// Checks that the head `found` is `seen` or a later one of the same writer.
fn check_head(keys: &Keys, seen: &Head, found: Option<&Head>) -> Result<(), Failure> {
    match found {
        Some(found) if found.epoch > seen.epoch => {
            Err(Failure::Deposed(format!("another leads in epoch {}", found.epoch)))
        }
        Some(found) if found.writer == seen.writer && found.position() >= seen.position() => Ok(()),
        found => Err(Failure::went_back(keys, seen, found)),
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::time::UnixTime;

    use super::*;

    #[test]
    fn head_of_another_writer_or_an_earlier_head_is_an_error() {
        let head = |epoch, sequence, writer| Head {
            epoch,
            sequence,
            writer,
            ..Head::first(UnixTime::default())
        };
        let (keys, seen) = (Keys::new("/ss/shop/"), head(3, 10, 7));
        for same in [head(3, 10, 7), head(3, 99, 7)] {
            assert_eq!(check_head(&keys, &seen, Some(&same)), Ok(()));
        }
        for next in [head(4, 11, 8), head(9, 2, 7)] {
            assert!(matches!(check_head(&keys, &seen, Some(&next)), Err(Failure::Deposed(_))));
        }
        for back in [Some(head(3, 9, 7)), Some(head(3, 11, 8)), Some(head(2, 99, 7)), None] {
            let result = check_head(&keys, &seen, back.as_ref());
            assert!(matches!(result, Err(Failure::WentBack { .. })), "{back:?}: {result:?}");
        }
    }
}
